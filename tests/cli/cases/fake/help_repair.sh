# SPDX-License-Identifier: Apache-2.0
# The help of the verb, and the same by the verb help.
breakwater repair --help
breakwater help repair | cmp - <(breakwater repair -h) && echo same
