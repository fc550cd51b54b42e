#!/bin/sh
# pyuwsgi 2.0.30.post1: in a virtual environment SIGHUP, which asks uWSGI's master for a
# graceful reload, ends the server. The master executes the interpreter that the
# environment was made from, which has no pyuwsgi.
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/python" -m pip install -q pyuwsgi==2.0.30.post1
cd "$work"
cat > app.py <<'PY'
def application(environ, start_response):
    start_response("200 OK", [])
    return [b"served"]
PY
"$work/venv/bin/uwsgi" --http-socket 127.0.0.1:0 --wsgi-file app.py --master \
  > log 2>&1 &
master=$!
for _ in $(seq 100); do
  grep -q "spawned uWSGI worker 1" log && break
  sleep 0.1
done
sleep 1
kill -HUP "$master"
code=0
wait "$master" || code=$?
grep -E "^(binary reloading|ModuleNotFoundError)" log
echo "the master has ended with $code"
grep -q "^ModuleNotFoundError: No module named 'pyuwsgi'" log && [ "$code" = 1 ]
