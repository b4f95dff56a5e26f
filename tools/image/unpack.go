package main

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"os"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
)

// unpack writes the files of a layout's platform below root, which is there and empty.
func unpack(dir, arch, root string) error {
	img, err := platform(dir, arch)
	if err != nil {
		return err
	}
	below, err := os.OpenRoot(root)
	if err != nil {
		return err
	}
	defer below.Close()
	files := mutate.Extract(img)
	defer files.Close()
	for r := tar.NewReader(files); ; {
		header, err := r.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if err := extract(below, header, r); err != nil {
			return err
		}
	}
}

func platform(dir, arch string) (v1.Image, error) {
	index, err := layout.ImageIndexFromPath(dir)
	if err != nil {
		return nil, err
	}
	manifest, err := index.IndexManifest()
	if err != nil {
		return nil, err
	}
	for _, m := range manifest.Manifests {
		if m.Platform != nil && m.Platform.Architecture == arch {
			return index.Image(m.Digest)
		}
	}
	return nil, fmt.Errorf("%s has no image for %s", dir, arch)
}

func extract(root *os.Root, header *tar.Header, data io.Reader) error {
	mode := os.FileMode(header.Mode)
	if header.Typeflag == tar.TypeDir {
		if err := root.MkdirAll(header.Name, mode); err != nil {
			return err
		}
	} else {
		text, err := io.ReadAll(data)
		if err != nil {
			return err
		}
		if err := root.WriteFile(header.Name, text, mode); err != nil {
			return err
		}
	}
	if os.Getuid() != 0 {
		return nil
	}
	return root.Chown(header.Name, header.Uid, header.Gid)
}
