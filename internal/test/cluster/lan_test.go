//go:build linux

package cluster_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// lan is a network of hosts with one cable each to a switch. Each host, and the switch, is a network
// namespace, which ends with the process that holds it: nothing of it reaches the machine's own network.
type lan struct {
	t       *testing.T
	bridges string // the switch's namespace
	hosts   []*host
}

// host is one of its hosts. A server there reaches only the other hosts; clients on this machine reach it
// through a Unix socket.
type host struct {
	lan       *lan
	namespace string
	address   string
	plug      string // at the switch
}

// startLAN makes a network of n hosts.
func startLAN(t *testing.T, n int) *lan {
	t.Helper()
	needs(t, "ip", "nsenter", "setpriv", "sleep")
	if os.Geteuid() != 0 {
		if os.Getenv(require) != "" {
			t.Fatal("network namespaces are made by root")
		}
		t.Skip("network namespaces are made by root")
	}
	l := &lan{t: t}
	l.bridges, _ = namespace(t)
	l.ip(l.bridges, "link", "add", "switch", "type", "bridge")
	l.ip(l.bridges, "link", "set", "switch", "up")
	for i := range n {
		h := &host{lan: l, address: "192.0.2." + strconv.Itoa(i+1), plug: "port" + strconv.Itoa(i+1)}
		var holder int
		h.namespace, holder = namespace(t)
		l.hosts = append(l.hosts, h)
		l.ip(l.bridges, "link", "add", h.plug, "type", "veth", "peer", "name", "cable", "netns", strconv.Itoa(holder))
		l.ip(l.bridges, "link", "set", h.plug, "master", "switch", "up")
		l.ip(h.namespace, "link", "set", "lo", "up")
		l.ip(h.namespace, "addr", "add", h.address+"/24", "dev", "cable")
		l.ip(h.namespace, "link", "set", "cable", "up")
	}
	return l
}

// namespace makes a network namespace, and returns its file and the process that holds it.
func namespace(t *testing.T) (file string, pid int) {
	t.Helper()
	cmd := exec.Command("sleep", "infinity")
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET}
	pid = start(t, cmd).cmd.Process.Pid
	return fmt.Sprintf("/proc/%d/ns/net", pid), pid
}

func (l *lan) ip(namespace string, args ...string) {
	l.t.Helper()
	all := append([]string{"--net=" + namespace, "ip"}, args...)
	if out, err := exec.CommandContext(context.WithoutCancel(l.t.Context()), "nsenter", all...).CombinedOutput(); err != nil {
		l.t.Fatalf("ip %s: %v\n%s", strings.Join(args, " "), err, out)
	}
}

// command runs a program on the host, as an account, and in the same process: it ends with this one.
func (h *host) command(as *syscall.Credential, program string, args ...string) *exec.Cmd {
	return exec.Command("nsenter", append([]string{
		"--net=" + h.namespace, "setpriv", "--reuid=" + strconv.Itoa(int(as.Uid)), "--regid=" + strconv.Itoa(int(as.Gid)), "--clear-groups",
		"--pdeathsig=KILL", program, // a change of the account forgets the signal
	}, args...)...)
}

// cut pulls the host's plug out of the switch: both sides send, and nothing arrives. mend puts it back.
func (h *host) cut()  { h.lan.ip(h.lan.bridges, "link", "set", h.plug, "nomaster") }
func (h *host) mend() { h.lan.ip(h.lan.bridges, "link", "set", h.plug, "master", "switch") }
