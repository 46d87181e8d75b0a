# SPDX-License-Identifier: Apache-2.0
# The help of the verb, and the same by the verb help.
breakwater prune --help
breakwater help prune | cmp - <(breakwater prune -h) && echo same
