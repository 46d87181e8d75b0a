# SPDX-License-Identifier: Apache-2.0
# The help of the verb, and the same by the verb help.
breakwater completion --help
breakwater help completion | cmp - <(breakwater completion -h) && echo same
