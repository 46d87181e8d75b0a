# SPDX-License-Identifier: Apache-2.0
# The list of verbs, by option, by verb, and the version.
breakwater --help
breakwater help | cmp - <(breakwater -h) && echo same
breakwater --version
breakwater version
breakwater version --json
