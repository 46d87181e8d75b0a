# SPDX-License-Identifier: Apache-2.0
# What is no file is not waited for, what its size says is not allocated, and no link among blobs is followed.
exec 2>&1
export BREAKWATER_REMOTE=file:///x
try() { timeout 20 breakwater import --run new --step 5 --allow-node-local "$@"; echo "exit $?"; }
"$PYTHON" "$TOOLS/safetensors_make.py" make a.safetensors w:F32:2x3:1
"$PYTHON" -c 'import socket; socket.socket(socket.AF_UNIX).bind("socket")'
mkfifo fifo; try fifo
try socket
try /dev/zero
ln -s loop loop; try loop
truncate -s 1T large; try large
deep=$(printf '%20000s' | tr ' ' '[')
"$PYTHON" "$TOOLS/safetensors_make.py" header h "{\"a\":$deep"; try h
ln -s a.safetensors linked; try linked
mkdir -p d/blobs/0 d/metadata; cp a.safetensors d/model.safetensors
mkfifo d/blobs/0/x; try d --with-blobs; rm d/blobs/0/x
ln -s /etc/passwd d/blobs/0/x; try d --with-blobs; rm d/blobs/0/x
mkdir d/blobs/0/x; try d --with-blobs; rmdir d/blobs/0/x
mkfifo d/metadata/0.json; try d --with-blobs; rm d/metadata/0.json
truncate -s 1T d/metadata/0.json; try d --with-blobs
printf '{}\0{' > d/metadata/0.json; try d --with-blobs; rm d/metadata/0.json
mv d/blobs blobs; ln -s ../blobs d/blobs; try d --with-blobs; rm d/blobs; mv blobs d
: > d/blobs/0/empty; truncate -s 1T d/blobs/0/large; try d --with-blobs
mkdir i; truncate -s 1T i/model.safetensors.index.json; try i
