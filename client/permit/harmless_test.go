package permit_test

import "testing"

// TestCommonCommands: what agents run all day is not refused, whatever signs are in it.
func TestCommonCommands(t *testing.T) {
	t.Setenv("HOME", "/h/me")
	g := gate(t, project(t, "yolo", nil, nil), nil)
	for _, text := range []string{
		"git commit -m \"$(cat <<'EOF'\nfix: it's broken (again)\n\n- uses `x` and $y\nEOF\n)\"", `git commit -m "x" -m "y; rm -rf /"`, "go test ./... 2>&1 | tail -20", "npm run build && ls dist", "for f in *.go; do gofmt -l $f; done",
		"cat <<'EOF' > file\nrm -rf /\n$x `y` ( { unclosed \" '\nEOF", "cat > file <<EOF\nhello $USER\nEOF", "cat <<-EOF\n\thi\n\tEOF\n", "cat <<\"EOF\" | tee f\nx\nEOF", "python3 - <<'EOF'\nprint('x' if 1 else \"y\")\nEOF", "node <<'E'\nx\nE",
		"find . -type d -name node_modules -prune -exec rm -rf {} +", "rm -rf node_modules dist && npm ci", "rm -rf \"$TMPDIR/x\"", "rm -rf \"$dir\"", "rm -rf $(mktemp -d)", "d=$(mktemp -d); cd $d && rm -rf *", "cd build && rm -rf *", "cd ~ && rm -rf foo", "cd - && rm -rf *", "cd / ; cd /tmp/x && rm -rf *",
		"export HOME=/tmp/h; rm -rf $HOME/x", "rm -rf ~/.cache/*", "rm -rf \"${DIR:?}\"/*", "rm -rf \"$(pwd)/x\"", "rm -rf !(x)", "rm -rf [a-z]*", "rm -rf dist/[a-z]* a{1,2}", "chmod -R u+w .", "chmod -R 755 *", "chown -R $USER: .",
		"x=$((1+2)); echo $x", "for ((i=0;i<3;i++)); do echo $i; done", "x=1; while [ $x -le 5 ]; do x=$((x+1)); done", "((i++))", "[[ $x -gt 1 ]] && echo", "declare -A m; m[a]=b; echo ${m[a]} ${m[\"a\"]}", "echo ${x:=y} ${x@Q} ${a[@]:1} ${x: -1}", "trap 'rm -rf \"$tmp\"' EXIT", "trap - EXIT", "eval \"$(ssh-agent -s)\"", "time go test ./...", "time -p ls",
		"curl -sSL https://x | tar xz", "curl -s x | python3 -m json.tool", "curl -s x | python3 -u script.py", "curl -s x | node -e 'x'", "curl -s x | bash script.sh", "curl -s x | sh ./parse.sh -s", "tag=$(curl -s x | jq -r .tag); sh build.sh \"$tag\"", "sh build.sh \"$(curl -s x)\"", "python3 x.py -c \"$x\"", "python3 x.py \"$(curl -s x)\"", "v=$(curl -s x); git tag \"$v\"", "bash -c 'curl -s x && ls'", "body=\"$(curl -s x)\"; echo \"$body\" | jq .",
		"echo y | sh install.sh", "echo 'select 1;' | psql", "yes | bash x.sh", "echo \"$x\" | sh", "printf '%s\\n' a b | xargs -n1 echo", "cat <<E | bash -s -- a\necho $1\nE", "ssh h 'bash -s' < x.sh", "git ls-files | while read f; do git -C . log -1 $f; done", "truncate -s 0 log.txt", "rsync -av a/ b/", "install -m 755 a b", "watch -n1 'ls | wc -l'", "docker run --rm -v /:/host x ls", "parallel 'go vet {}' ::: a b", "flock f -c 'ls; ls'", "env -S 'a b' c", "echo x >&2", "ls >& f", "exec 3<>/dev/tcp/localhost/80",
		"OPTS='-v -race'; go test $OPTS ./...", "CMD='go test'; $CMD ./...", "E=; go $E test", "retry() { \"$@\" || retry \"$@\"; }; retry ls", "worker() { sleep 1; }; for i in 1 2; do worker & done; wait", "ls\r\ncd x\r\n",
	} {
		if err := g.Check(t.Context(), command(text)); err != nil {
			t.Errorf("%q: %v", text, err)
		}
	}
}
