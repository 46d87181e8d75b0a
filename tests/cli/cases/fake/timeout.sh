# SPDX-License-Identifier: Apache-2.0
# --timeout reaches whatever looks at a tier.
exec 2>&1
export BREAKWATER_REMOTE=file:///hangs
for options in '' '--timeout 90s' '--timeout 0'; do
    breakwater ls $options; echo "exit $?"
    breakwater export gpt --to x $options; echo "exit $?"
    breakwater doctor $options; echo "exit $?"
done
