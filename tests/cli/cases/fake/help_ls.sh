# SPDX-License-Identifier: Apache-2.0
# The help of the verb, and the same by the verb help.
breakwater ls --help
breakwater help ls | cmp - <(breakwater ls -h) && echo same
