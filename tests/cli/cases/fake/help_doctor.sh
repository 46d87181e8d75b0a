# SPDX-License-Identifier: Apache-2.0
# The help of the verb, and the same by the verb help.
breakwater doctor --help
breakwater help doctor | cmp - <(breakwater doctor -h) && echo same
