# SPDX-License-Identifier: Apache-2.0
# The help of the verb, and the same by the verb help.
breakwater diff --help
breakwater help diff | cmp - <(breakwater diff -h) && echo same
