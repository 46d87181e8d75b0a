# SPDX-License-Identifier: Apache-2.0
# The help of the verb, and the same by the verb help.
breakwater version --help
breakwater help version | cmp - <(breakwater version -h) && echo same
