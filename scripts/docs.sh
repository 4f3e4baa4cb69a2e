#!/usr/bin/env bash
# Builds the documentation as a site in site/; a dead link, a missing anchor or a page that the navigation lacks is an error.
# usage: bash scripts/docs.sh           build it
#        bash scripts/docs.sh serve     build it again whenever a page changes, and serve it at http://127.0.0.1:8000
# It needs packages of its own and none of the program's, so it has its own environment, .venv-docs. PYTHON=… chooses the interpreter.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
export NO_MKDOCS_2_WARNING=1

python=${PYTHON:-$([ -x .venv/bin/python ] && echo .venv/bin/python || echo python3)}
stamp=.venv-docs/.installed
wanted=$(cat pyproject.toml constraints.txt scripts/docs.sh | sha256sum)
if [ "$(cat "$stamp" 2>/dev/null)" != "$wanted" ]; then
  printf '== making .venv-docs with %s\n' "$("$python" --version)" >&2
  "$python" -m venv --clear .venv-docs
  packages=$("$python" -c 'import tomllib; print(*tomllib.load(open("pyproject.toml", "rb"))["project"]["optional-dependencies"]["docs"])')
  # shellcheck disable=SC2086  # several packages, none with a space
  .venv-docs/bin/python -m pip install --quiet --disable-pip-version-check -c constraints.txt $packages
  printf '%s' "$wanted" > "$stamp"
fi

case ${1:-build} in
  build) .venv-docs/bin/python -m mkdocs --quiet build --strict --clean && echo "Site: site/index.html" ;;
  serve) exec .venv-docs/bin/python -m mkdocs serve --strict --dev-addr 127.0.0.1:8000 ;;
  *) printf 'docs.sh: error: %s: build or serve\n' "$1" >&2; exit 2 ;;
esac
