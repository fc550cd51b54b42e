#!/bin/sh
# CPython 3.11, apsw 3.54.1.0: `import apsw` from within a zipapp succeeds, and what is
# imported is an empty namespace package. The `__init__` of apsw is a compiled module,
# which no archive gives, and its folder in the archive is taken for a package without
# one. So there is no ImportError, which would name the reason, but an AttributeError
# somewhere later.
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/python" -m pip install -q --target "$work/app" apsw==3.54.1.0
cat > "$work/app/__main__.py" <<'PY'
import apsw

print(apsw.__spec__.origin, hasattr(apsw, "Connection"), apsw.__path__[0][-12:])
PY
found=$("$work/venv/bin/python" "$work/app" | cut -d' ' -f2)
"$work/venv/bin/python" -m zipapp "$work/app" -o "$work/app.pyz"
found="$found
$("$work/venv/bin/python" "$work/app.pyz")"
printf '%s\n' "$found"
[ "$found" = "True
None False app.pyz/apsw" ]
