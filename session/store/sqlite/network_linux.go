package sqlite

import (
	"bytes"
	"fmt"
	"os"
	"strings"
	"syscall"
)

// networkTypes are the file systems that several machines may use at a time, by the type that statfs
// returns.
var networkTypes = map[uint32]string{
	0x6969:     "NFS",
	0x517b:     "SMB",
	0xff534d42: "CIFS",
	0xfe534d42: "SMB2",
	0x01021997: "9P",
	0x00c36400: "Ceph",
	0x5346414f: "AFS",
	0x6b414653: "AFS",
	0x73757245: "Coda",
	0x564c:     "NCP",
	0x01161970: "GFS2",
	0x7461636f: "OCFS2",
	0x0bd00bd0: "Lustre",
	0x47504653: "GPFS",
	0xaad7aaea: "PanFS",
	0x19830326: "BeeGFS",
	0x20030528: "OrangeFS",
	0x786f4256: "VirtualBox shared folder",
	0xbacbacbc: "VMware shared folder",
}

// fuseType is the type of all file systems in user space; which one it is stands in the list of mounts.
const fuseType = 0x65735546

// networkFUSE are those in user space that several machines may use at a time.
var networkFUSE = map[string]bool{
	"alluxio-fuse": true, "beegfs": true, "blobfuse": true, "blobfuse2": true, "ceph-fuse": true, "cephfs": true,
	"curlftpfs": true, "davfs": true, "davfs2": true, "gcsfuse": true, "glusterfs": true, "goofys": true,
	"hdfs": true, "fuse_dfs": true, "juicefs": true,
	"lizardfs": true, "mfs": true, "moosefs": true, "mount-s3": true, "mountpoint-s3": true, "rclone": true,
	"s3fs": true, "s3ql": true, "seaweedfs": true, "smbnetfs": true, "sshfs": true, "vmhgfs-fuse": true,
}

// networkOf returns the name of the network file system that a path is on, "" for another one.
func networkOf(path string) (string, error) {
	var stat syscall.Statfs_t
	if err := syscall.Statfs(path, &stat); err != nil {
		return "", fmt.Errorf("statfs %s: %w", path, err)
	}
	kind := uint32(stat.Type) // the kernel has 32 bits, which some systems extend by their sign
	if kind != fuseType {
		return networkTypes[kind], nil
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return "", nil //nolint:nilerr // no /proc: most of them are local
	}
	info, err := os.Stat(path)
	if err != nil {
		return "", err
	}
	if name := mountedAs(mounts, info.Sys().(*syscall.Stat_t).Dev); networkFUSE[strings.TrimPrefix(name, "fuse.")] {
		return name, nil
	}
	return "", nil
}

// mountedAs returns the type of the file system of a device in a list of mounts (proc(5), mountinfo), "" if
// it is not there.
func mountedAs(mounts []byte, dev uint64) string {
	// As in makedev(3).
	major := dev>>8&0xfff | dev>>32&^0xfff
	minor := dev&0xff | dev>>12&^0xff
	device := fmt.Sprintf("%d:%d", major, minor&0xffffffff)
	for line := range bytes.Lines(mounts) {
		mount, kind, ok := strings.Cut(string(line), " - ")
		if fields := strings.Fields(mount); ok && len(fields) > 2 && fields[2] == device {
			kind, _, _ = strings.Cut(kind, " ")
			return kind
		}
	}
	return ""
}
