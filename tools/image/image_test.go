package main

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

func dockerfile(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("../../Dockerfile")
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func config(t *testing.T) v1.Config {
	t.Helper()
	c, err := parse(dockerfile(t), map[string]string{"VERSION": "v1.2.3", "COMMIT": "0123456789ab"})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

var noon = time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC)

// layoutOf writes a layout of two platforms whose binaries are texts, and returns its folder and digest.
func layoutOf(t *testing.T, at time.Time) (string, v1.Hash) {
	t.Helper()
	binaries := map[string]string{}
	for _, arch := range []string{"amd64", "arm64"} {
		binaries[arch] = filepath.Join(t.TempDir(), "agentd")
		if err := os.WriteFile(binaries[arch], []byte("for "+arch), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	dir := filepath.Join(t.TempDir(), "image")
	digest, err := write(dir, config(t), at, binaries)
	if err != nil {
		t.Fatal(err)
	}
	return dir, digest
}

func TestConfiguration(t *testing.T) {
	t.Parallel()
	c := config(t)
	health := c.Healthcheck
	got := fmt.Sprint(c.User, c.Entrypoint, c.Cmd, c.Env, c.Volumes, c.ExposedPorts, health.Test, health.Interval, health.Timeout,
		health.StartPeriod, health.Retries)
	want := "65532:65532[/agentd][serve][AGENTD_DATA=/data AGENTD_ADDR=:8080 AGENTD_INSECURE=true]map[/data:{}]map[8080/tcp:{}]" +
		"[CMD /agentd healthcheck]10s3s10s3"
	if got = strings.ReplaceAll(got, "] [", "]["); strings.ReplaceAll(got, " ", "") != strings.ReplaceAll(want, " ", "") {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	for label, want := range map[string]string{"version": "v1.2.3", "revision": "0123456789ab", "licenses": "Apache-2.0",
		"source": "https://github.com/apzuk3/agentd", "title": "agentd"} {
		if got := c.Labels["org.opencontainers.image."+label]; got != want {
			t.Errorf("label %s is %q, want %q", label, got, want)
		}
	}
}

func TestUnknownInstructions(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"FROM a AS b\nUSER 1":                               "not from scratch",
		"#\nFROM scratch\nRUN ls":                           "RUN ls: the instruction is not known",
		"#\nFROM scratch\nCMD serve":                        "CMD serve: invalid character",
		"#\nFROM scratch\nARG OTHER":                        "the argument OTHER is not known",
		"#\nFROM scratch\nLABEL a":                          "want one KEY=VALUE",
		"#\nFROM scratch\nHEALTHCHECK NONE":                 "want CMD",
		"#\nFROM scratch\nHEALTHCHECK --size=3 CMD [\"a\"]": "--size=3: the option is not known",
	} {
		if _, err := parse(text, nil); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
}

// TestFiles compares what the image holds with what the Dockerfile copies.
func TestFiles(t *testing.T) {
	t.Parallel()
	want := map[string]string{}
	_, stage, _ := strings.Cut(dockerfile(t), "FROM scratch")
	for _, m := range regexp.MustCompile(`(?m)^COPY --from=build (?:--chown=(\S+) )?(\S+) (\S+)$`).FindAllStringSubmatch(stage, -1) {
		to := m[3]
		if strings.HasSuffix(to, "/") {
			to += filepath.Base(m[2])
		}
		if m[1] == "" {
			m[1] = "0:0"
		}
		want[to] = m[1]
	}
	if len(want) != 4 {
		t.Fatalf("the Dockerfile copies %v, want four files", want)
	}
	dir, _ := layoutOf(t, noon)
	img, err := platform(dir, "arm64")
	if err != nil {
		t.Fatal(err)
	}
	for r := tar.NewReader(mutate.Extract(img)); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		path := "/" + strings.TrimSuffix(h.Name, "/")
		owner := fmt.Sprintf("%d:%d", h.Uid, h.Gid)
		if got, ok := want[path]; ok && got != owner {
			t.Errorf("%s is owned by %s, want %s", path, owner, got)
		} else if !ok && (h.Typeflag != tar.TypeDir || owner != "0:0") {
			t.Errorf("%s of %s is in the image, the Dockerfile copies %v", path, owner, want)
		}
		if !h.ModTime.Equal(noon) {
			t.Errorf("%s is of %v, want %v", path, h.ModTime, noon)
		}
		delete(want, path)
	}
	if len(want) > 0 {
		t.Errorf("not in the image: %v", want)
	}
}

func TestSameDigest(t *testing.T) {
	t.Parallel()
	_, first := layoutOf(t, noon)
	_, second := layoutOf(t, noon)
	_, later := layoutOf(t, noon.Add(time.Second))
	if first != second || first == later {
		t.Errorf("digests %v, %v, and %v a second later; want two that are the same and another one", first, second, later)
	}
}

func TestTarball(t *testing.T) {
	t.Parallel()
	dir, _ := layoutOf(t, noon)
	loaded, err := tarball.ImageFromPath(dir+"-amd64.tar", nil)
	if err != nil {
		t.Fatal(err)
	}
	about, err := loaded.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	if about.Architecture != "amd64" || about.OS != "linux" || about.Config.User != config(t).User || about.Config.Healthcheck == nil {
		t.Errorf("docker load would make %+v", about)
	}
}

func TestPush(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	defer server.Close()
	dir, digest := layoutOf(t, noon)
	reference := strings.TrimPrefix(server.URL, "http://") + "/somebody/agentd:v1.2.3"
	if err := push(dir, []string{reference}); err != nil {
		t.Fatal(err)
	}
	ref, err := name.ParseReference(reference)
	if err != nil {
		t.Fatal(err)
	}
	index, err := remote.Index(ref)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := index.Digest(); err != nil || got != digest {
		t.Errorf("the registry has %v (%v), want %v", got, err, digest)
	}
	arm, err := remote.Image(ref, remote.WithPlatform(v1.Platform{OS: "linux", Architecture: "arm64"}))
	if err != nil {
		t.Fatal(err)
	}
	if about, err := arm.ConfigFile(); err != nil || about.Architecture != "arm64" {
		t.Errorf("for arm64 the registry has %+v (%v)", about, err)
	}
}
