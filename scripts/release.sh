#!/usr/bin/env bash
# A release: checks, version, changelog, wheel, site, commit and tag. Nothing is pushed or uploaded.
# Usage: release.sh VERSION. With DRY_RUN=1 it checks the tree, and then only prints the steps.
set -euo pipefail
cd "$(dirname "$0")/.."
version=${1:-} python=${PYTHON:-python}

refuse() {
  echo "release: $1" >&2
  exit 1
}

step() {
  echo "+ $*"
  [ -n "${DRY_RUN:-}" ] || "$@"
}

set_version() {
  sed -i "s/^version = \".*\"/version = \"$1\"/" pyproject.toml
  sed -i "s/^__version__ = \".*\"/__version__ = \"$1\"/" unity_collage/__init__.py
  sed -i "s/unity_collage-[0-9][0-9a-z.]*-py3/unity_collage-$1-py3/" README.md
}

[[ $version =~ ^[0-9]+\.[0-9]+\.[0-9]+((a|b|rc)[0-9]+)?$ ]] || refuse "'$version' is not a version: VERSION=1.2.3"
[ -z "$(git status --porcelain)" ] || refuse "the tree has changes: commit or stash them"
[ -z "$(git tag --list "v$version")" ] || refuse "there is a tag v$version already: take the next version"
fragments=$(find changelog.d -name '*.md' ! -name README.md | wc -l)
[ "$fragments" -gt 0 ] || refuse "changelog.d has no fragments: nothing has changed for users"

step make check PYTHON="$python"
step make check-pages PYTHON="$python"
step set_version "$version"
step make changelog VERSION="$version" PYTHON="$python"
step make wheel
step make site VERSION="$version" PYTHON="$python"
step git commit -am "Release $version"
step git tag -a "v$version" -m "unity_collage $version"
echo "release: then push the branch and the tag v$version, and upload dist/ and build/sites/"
