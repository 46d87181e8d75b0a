# SPDX-License-Identifier: Apache-2.0
# The hidden verb that prints manual pages.
exec 2>&1
breakwater __man | tr '\n' ' '; echo
breakwater __man nothing; echo "exit $?"
breakwater __man ls | head -6
if command -v mandoc > /dev/null; then
    for page in $(breakwater __man); do breakwater __man $page > page; mandoc -T lint -W warning page; done
fi
