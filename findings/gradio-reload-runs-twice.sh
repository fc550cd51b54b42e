#!/bin/sh
# Gradio 6.31.0: `gradio app.py` runs the program twice at its start, in one process: once
# as the main module, and at launch() once more, in a thread, with the same globals. What
# the program starts beside its window (a thread, a connection) is there twice. With
# `python app.py` it runs once.
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/python" -m pip install -q gradio==6.31.0
cat > "$work/app.py" <<'PY'
import os
import threading
import time

import gradio

here = "the main thread"
if threading.current_thread() is not threading.main_thread():
    here = "another thread"
with open("runs", "a") as runs:
    runs.write(f"{__name__} {os.getpid()} in {here}\n")
with gradio.Blocks() as demo:
    gradio.Markdown("hello")
demo.launch(prevent_thread_lock=True, ssr_mode=False, server_port=int(os.environ["PORT"]))
if here == "the main thread":
    time.sleep(10)
PY
cd "$work"
PORT=$("$work/venv/bin/python" -c \
    'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
export PORT GRADIO_ANALYTICS_ENABLED=0
"$work/venv/bin/python" app.py > log 2>&1
sed 's/ [0-9]* in / in /' runs > plainly
rm runs
"$work/venv/bin/gradio" app.py > log 2>&1
processes=$(cut -d ' ' -f 2 runs | sort -u | wc -l)
found="python app.py: $(cat plainly)
gradio app.py, in $((processes)) process:
$(sed 's/ [0-9]* in / in /' runs)"
printf '%s\n' "$found"
[ "$found" = "python app.py: __main__ in the main thread
gradio app.py, in 1 process:
__main__ in the main thread
__main__ in another thread" ]
