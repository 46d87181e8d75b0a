# SPDX-License-Identifier: Apache-2.0
# The help of the verb, and the same by the verb help.
breakwater verify --help
breakwater help verify | cmp - <(breakwater verify -h) && echo same
