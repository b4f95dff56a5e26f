package main

import (
	"archive/tar"
	"bytes"
	"encoding/pem"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"golang.org/x/crypto/x509roots/fallback/bundle"
)

// file is an entry of a layer; a folder's name ends with a slash.
type file struct {
	name string
	mode int64
	own  bool // by the image's user, else by root
	data []byte
}

// plain is an image that an index does not call an artifact.
type plain struct{ v1.Image }

// ArtifactType is none.
func (plain) ArtifactType() (string, error) { return "", nil }

// write writes the layout dir and its tarballs, and returns the digest of the layout's index.
func write(dir string, config v1.Config, created time.Time, binaries map[string]string) (v1.Hash, error) {
	index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	for _, arch := range slices.Sorted(maps.Keys(binaries)) {
		platform := v1.Platform{OS: "linux", Architecture: arch}
		img, err := image(config, created, platform, binaries[arch])
		if err != nil {
			return v1.Hash{}, err
		}
		about := v1.Descriptor{Platform: &platform}
		index = mutate.AppendManifests(index, mutate.IndexAddendum{Add: plain{img}, Descriptor: about})
		tag, err := name.NewTag("agentd:latest")
		if err != nil {
			return v1.Hash{}, err
		}
		if err := tarball.WriteToFile(dir+"-"+arch+".tar", tag, img); err != nil {
			return v1.Hash{}, err
		}
	}
	if err := os.RemoveAll(dir); err != nil {
		return v1.Hash{}, err
	}
	if _, err := layout.Write(dir, index); err != nil {
		return v1.Hash{}, err
	}
	return index.Digest()
}

// image is one platform: what all have, then the binary.
func image(config v1.Config, created time.Time, platform v1.Platform, binary string) (v1.Image, error) {
	program, err := os.ReadFile(binary)
	if err != nil {
		return nil, err
	}
	base := []file{
		{name: "data/", mode: 0o755, own: true},
		{name: "etc/", mode: 0o755},
		{name: "etc/ssl/", mode: 0o755},
		{name: "etc/ssl/certs/", mode: 0o755},
		{name: "etc/ssl/certs/ca-certificates.crt", mode: 0o644, data: certificates()},
		{name: "tmp/", mode: 0o755, own: true},
	}
	img := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	for _, files := range [][]file{base, {{name: "agentd", mode: 0o755, data: program}}} {
		layer, err := pack(files, config.User, created)
		if err != nil {
			return nil, err
		}
		img, err = mutate.Append(img, mutate.Addendum{Layer: layer, MediaType: types.OCILayer,
			History: v1.History{Created: v1.Time{Time: created}, CreatedBy: "tools/image"}})
		if err != nil {
			return nil, err
		}
	}
	about, err := img.ConfigFile()
	if err != nil {
		return nil, err
	}
	about = about.DeepCopy()
	about.OS, about.Architecture = platform.OS, platform.Architecture
	about.Created, about.Config = v1.Time{Time: created}, config
	return mutate.ConfigFile(img, about)
}

// pack makes a layer whose bytes depend on its arguments alone.
func pack(files []file, user string, created time.Time) (v1.Layer, error) {
	uid, gid, err := ids(user)
	if err != nil {
		return nil, err
	}
	var buf bytes.Buffer
	w := tar.NewWriter(&buf)
	for _, f := range files {
		header := tar.Header{Typeflag: tar.TypeReg, Name: f.name, Mode: f.mode, ModTime: created}
		header.Size = int64(len(f.data))
		if strings.HasSuffix(f.name, "/") {
			header.Typeflag = tar.TypeDir
		}
		if f.own {
			header.Uid, header.Gid = uid, gid
		}
		if err := w.WriteHeader(&header); err != nil {
			return nil, err
		}
		if _, err := w.Write(f.data); err != nil {
			return nil, err
		}
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	open := func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(buf.Bytes())), nil }
	return tarball.LayerFromOpener(open, tarball.WithMediaType(types.OCILayer))
}

func ids(user string) (uid, gid int, err error) {
	u, g, _ := strings.Cut(user, ":")
	if uid, err = strconv.Atoi(u); err == nil {
		gid, err = strconv.Atoi(g)
	}
	if err != nil {
		return 0, 0, fmt.Errorf("the user %q is not UID:GID", user)
	}
	return uid, gid, nil
}

// certificates are the roots that Mozilla trusts without conditions, which a PEM file cannot state.
func certificates() []byte {
	var buf bytes.Buffer
	for root := range bundle.Roots() {
		if root.Constraint == nil {
			buf.Write(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: root.Certificate}))
		}
	}
	return buf.Bytes()
}
