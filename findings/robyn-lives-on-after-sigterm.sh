#!/bin/sh
# Robyn 0.88.0: at SIGTERM a server of one process stops to accept connections, and its
# process lives on until it is killed. Its shutdown handler is not called.
set -eu
work=$(mktemp -d)
server=
trap 'kill -9 $server 2>/dev/null || true; rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/python" -m pip install -q robyn==0.88.0
cd "$work"
cat > app.py <<'PY'
from robyn import Robyn

app = Robyn(__file__)


@app.get("/")
def served(request):
    return "served"


@app.shutdown_handler
def stopped():
    print("shutdown handler", flush=True)


app.start(host="127.0.0.1", port=18473)
PY
"$work/venv/bin/python" app.py > log 2>&1 &
server=$!
asks() {
  "$work/venv/bin/python" -c "
import urllib.request
print(urllib.request.urlopen('http://127.0.0.1:18473/', timeout=5).read().decode())"
}
for _ in $(seq 100); do
  asks > answer 2>/dev/null && break
  sleep 0.1
done
cat answer
kill -TERM "$server"
sleep 10
found=$(
  asks > /dev/null 2>&1 && echo "accepts" || echo "accepts no more"
  kill -0 "$server" 2>/dev/null && echo "lives" || echo "has ended"
  grep -c "^shutdown handler" log || true
)
printf '%s\n' "$found"
[ "$found" = "accepts no more
lives
0" ]
