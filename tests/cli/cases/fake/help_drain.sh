# SPDX-License-Identifier: Apache-2.0
# The help of the verb, and the same by the verb help.
breakwater drain --help
breakwater help drain | cmp - <(breakwater drain -h) && echo same
