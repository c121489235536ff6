#!/bin/sh
# Replace this by the program. Use exec, so that it gets the signals itself.
echo "listening on port $1"
exec sleep 2147483647
