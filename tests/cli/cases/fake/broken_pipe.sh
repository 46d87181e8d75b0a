# SPDX-License-Identifier: Apache-2.0
# Output that nobody takes is a failure, not success.
exec 2>&1
export BREAKWATER_REMOTE=file:///x
breakwater ls gpt > /dev/full; echo "exit $?"
breakwater --help > /dev/full; echo "exit $?"
breakwater verify damaged > /dev/full; echo "exit $?"
breakwater version >&-; echo "exit $?"
"$PYTHON" -c "import os, subprocess
r, w = os.pipe()
os.close(r)
print('exit', subprocess.call(['breakwater', 'ls', 'gpt'], stdout=w))"
