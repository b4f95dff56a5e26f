package main

import (
	"encoding/json"
	"fmt"

	"github.com/apzuk3/agentd/internal/cli"
	"github.com/apzuk3/agentd/internal/daemon"
)

// encryptionFlags say with which keys the database is encrypted.
type encryptionFlags struct {
	EncryptionKeys    string `placeholder:"FILE" help:"${encryption_keys}"`
	EncryptionCommand string `placeholder:"PROGRAM" help:"${encryption_command}"`
}

func (f *encryptionFlags) encryption() daemon.Encryption {
	return daemon.Encryption{KeysFile: f.EncryptionKeys, Command: f.EncryptionCommand}
}

type encryptionCmd struct {
	NewKey newKeyCmd `cmd:"" help:"Print a new encryption key."`
	Reseal resealCmd `cmd:"" help:"Encrypt all that is clear, and the rest with a new data key."`
}

type newKeyCmd struct {
	ID string `arg:"" help:"What the key is called, such as main-2027."`
}

// Help is shown below the flags.
func (*newKeyCmd) Help() string {
	return `Prints a line of the file of --encryption-keys: the id and 32 random bytes in base64. The first line of that
file encrypts, the others open what they have encrypted before. Who loses the keys has lost the data.

Examples:

  agentd encryption new-key main-2027 | (umask 077; cat > encryption.keys)

  agentd encryption new-key main-2028 | (umask 077; cat - encryption.keys > new.keys) && mv new.keys encryption.keys`
}

// Run prints a key.
func (c *newKeyCmd) Run(p *process) error {
	line, err := daemon.NewEncryptionKey(c.ID)
	if err != nil {
		return usage("%w", err)
	}
	_, err = fmt.Fprintln(p.stdout, line)
	return err
}

type resealCmd struct {
	configFlag
	Data string `placeholder:"DIR" help:"${backup_data}"`
	JSON bool   `name:"json" noenv:"" help:"Write JSON."`
	encryptionFlags

	storeFlag         `embed:""`
	AllowNetworkFiles bool `help:"${serve_allow_network_files}"`
}

// Help is shown below the flags.
func (*resealCmd) Help() string {
	return `Encrypts what was written before the server had keys, and all else anew with a new data key; older data
keys are removed. What was there before is gone from the files of the database as after a delete. A server that runs
does it, and continues if this command is interrupted or the server is restarted; without one, this command does it.

Backups and copies of the database keep what they have, and need the keys that they were made with.

Examples:

  agentd encryption reseal`
}

// Run seals all values again.
func (c *resealCmd) Run(p *process) error {
	cfg := daemon.Config{
		StoreURL: daemon.Secret(c.Store), AllowNetworkFiles: c.AllowNetworkFiles, Encryption: c.encryption(),
	}
	if c.Store == "" {
		var err error
		if cfg.DataDir, err = p.folder(c.Data); err != nil {
			return err
		}
	}
	ctx, stop := p.context()
	defer stop()
	result, left, err := daemon.Reseal(ctx, cfg)
	if err != nil {
		return err
	}
	if c.JSON {
		return json.NewEncoder(p.stdout).Encode(map[string]any{"result": result, "copies": left})
	}
	fmt.Fprintln(p.stdout, result)
	for _, file := range left {
		p.notef("%s may have clear values: remove it when you do not need it", cli.Clean(file))
	}
	return nil
}
