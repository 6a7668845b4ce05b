package main

import (
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// harness loads the completion script as a user does and completes a command line. If the
// package bash-completion is not installed, harness defines the one function of it that the
// script calls.
const harness = `
holdfast() { ` + asCommand + `=1 "$BINARY" "$@"; }
declare -F _get_comp_words_by_ref >/dev/null || _get_comp_words_by_ref() {
	words=("${COMP_WORDS[@]}"); cword=$COMP_CWORD; cur=${words[cword]}; prev=${words[cword-1]}
}
compopt() { :; }
source <(holdfast completion bash)
complete -p holdfast | grep -q __start_holdfast || exit 9
COMP_WORDS=(holdfast "$@"); COMP_CWORD=$#; COMP_LINE="${COMP_WORDS[*]}"; COMP_POINT=${#COMP_LINE}; COMP_TYPE=9
__start_holdfast
printf '%s\n' "${COMPREPLY[@]}"
`

func TestBashCompletion(t *testing.T) {
	t.Parallel()
	bash, err := exec.LookPath("bash")
	if err != nil {
		t.Skip("bash was not found, so its completion was not tried")
	}
	for line, want := range map[string][]string{
		"":                               {"migrate", "locks", "ops", "reap", "doctor", "prove", "bench", "version", "completion", "after-restore"},
		"mig":                            {"migrate"},
		"locks ":                         {"blocked", "list", "queues", "release"},
		"locks release --kind ":          {"lease", "fair", "semaphore"},
		"locks release -kind s":          {"semaphore"},
		"ops list --state ":              {"unknown", "in-progress", "waiting", "settling", "succeeded", "rejected", "succeeded-and-expired", "rejected-and-expired"},
		"ops list --state unknown,wai":   {"unknown,waiting"},
		"ops list --state unknown,set":   {"unknown,settling"},
		"ops resolve --as step-":         {"step-done", "step-not-done", "step-rejected"},
		"migrate print --engine m":       {"mysql", "mariadb"},
		"doctor --js":                    {"--json"},
		"doctor -js":                     {"-json"},
		"doctor --table ":                {},
		"locks release --by ada --reas":  {"--reason"},
		"ops --namespace x list --recor": {"--records"},
		"once --retry ":                  {"unknown", "failed"},
		"lock ":                          {},
	} {
		cmd := exec.CommandContext(t.Context(), bash, append([]string{"-c", harness, "bash"}, strings.Split(line, " ")...)...)
		cmd.Env = append(os.Environ(), "BINARY="+os.Args[0])
		var said strings.Builder
		cmd.Stderr = &said
		out, err := cmd.Output()
		if err != nil || said.Len() > 0 {
			t.Fatalf("%q: %v: %s", line, err, said.String())
		}
		got := []string{}
		for l := range strings.Lines(string(out)) {
			if word, _, _ := strings.Cut(strings.TrimSpace(l), " "); word != "" {
				got = append(got, strings.ReplaceAll(word, `\,`, ","))
			}
		}
		slices.Sort(got)
		slices.Sort(want)
		if line == "" { // further candidates are allowed
			got = slices.DeleteFunc(got, func(w string) bool { return !slices.Contains(want, w) })
		}
		if !slices.Equal(got, want) {
			t.Errorf("%q: got %q, want %q", line, got, want)
		}
	}
}

// TestCompletionScripts checks that each shell has a script, and that each installed shell can
// parse its own.
func TestCompletionScripts(t *testing.T) {
	t.Parallel()
	for _, shell := range []string{"bash", "zsh", "fish", "powershell"} {
		code, out, err := command(t, "completion", shell)
		if code != exitOK || !strings.Contains(out, "__complete") || err != "" {
			t.Errorf("%s: status %d, %s", shell, code, err)
		}
		path, missing := exec.LookPath(shell)
		if missing != nil {
			t.Logf("%s is not on this machine: its script was not read", shell)
			continue
		}
		cmd := exec.CommandContext(t.Context(), path, "-n")
		cmd.Stdin = strings.NewReader(out)
		if said, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%s: %v: %s", shell, err, said)
		}
	}
}
