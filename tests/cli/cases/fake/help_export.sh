# SPDX-License-Identifier: Apache-2.0
# The help of the verb, and the same by the verb help.
breakwater export --help
breakwater help export | cmp - <(breakwater export -h) && echo same
