# SPDX-License-Identifier: Apache-2.0
# The help of the verb, and the same by the verb help.
breakwater help --help
breakwater help help | cmp - <(breakwater help -h) && echo same
