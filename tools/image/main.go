// Command image builds agentd's image without Docker, to the same bytes from the same binaries, and pushes it.
//
//	image build [flags] DIR ARCH=BINARY...    write an OCI layout to DIR, and DIR-ARCH.tar for docker load
//	image push DIR REFERENCE...               push the layout; prints the reference with the digest
//	image unpack DIR ARCH ROOT                write the files of one platform below ROOT, their owners too as root
//
// The image's configuration is that of the last stage of the Dockerfile.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/remote"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "image:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	usage := errors.New("want build, push or unpack with their arguments")
	if len(args) == 0 {
		return usage
	}
	switch command, args := args[0], args[1:]; {
	case command == "build":
		return build(args)
	case command == "push" && len(args) >= 2:
		return push(args[0], args[1:])
	case command == "unpack" && len(args) == 3:
		return unpack(args[0], args[1], args[2])
	}
	return usage
}

// build prints the digest of what it has written.
func build(args []string) error {
	flags := flag.NewFlagSet("image build", flag.ContinueOnError)
	dockerfile := flags.String("dockerfile", "Dockerfile", "whose last stage has the configuration")
	version := flags.String("version", "", "VERSION of the Dockerfile")
	commit := flags.String("commit", "", "COMMIT of the Dockerfile")
	epoch := flags.Int64("epoch", 0, "time of all files, and of the image, in seconds since 1970")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() < 2 {
		return errors.New("want a folder and at least one ARCH=BINARY")
	}
	text, err := os.ReadFile(*dockerfile)
	if err != nil {
		return err
	}
	config, err := parse(string(text), map[string]string{"VERSION": *version, "COMMIT": *commit})
	if err != nil {
		return fmt.Errorf("%s: %w", *dockerfile, err)
	}
	binaries := map[string]string{}
	for _, arg := range flags.Args()[1:] {
		arch, path, ok := strings.Cut(arg, "=")
		if !ok {
			return fmt.Errorf("%q is not ARCH=BINARY", arg)
		}
		binaries[arch] = path
	}
	digest, err := write(flags.Arg(0), config, time.Unix(*epoch, 0).UTC(), binaries)
	if err != nil {
		return err
	}
	fmt.Println(digest)
	return nil
}

// push uses the credentials of `docker login`.
func push(dir string, references []string) error {
	index, err := layout.ImageIndexFromPath(dir)
	if err != nil {
		return err
	}
	digest, err := index.Digest()
	if err != nil {
		return err
	}
	for _, reference := range references {
		ref, err := name.ParseReference(reference, name.StrictValidation)
		if err != nil {
			return err
		}
		if err := remote.WriteIndex(ref, index, remote.WithAuthFromKeychain(authn.DefaultKeychain)); err != nil {
			return err
		}
		fmt.Println(ref.Context().Digest(digest.String()))
	}
	return nil
}
