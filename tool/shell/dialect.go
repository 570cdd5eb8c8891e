package shell

import (
	"path/filepath"
	"strconv"
	"strings"
)

// dialect is how a kind of shell is told what to do.
//
// The shell is started with a loop as its script. For each call the loop is told by a line of file
// in, which for sh is the number of the standard error. It evaluates what is in a memory file of this process: assignments (the call's number, the
// slot of the state, a nonce) and the script, with the output files in place of 1 and 2 and closed under their own numbers, so that nothing inherits what
// belongs to the loop. Then it writes the state, and tells the end. A break or continue of a script that is in no loop of
// its own is one of this loop: the two
// around each other and __agentrun_in tell, and the script ends with a sentence and status 1 (break 2 ends the shell too).
// The redirections of the loop are undone before a trap on EXIT runs, so that what it prints goes where the shell itself has its outputs. Behind
// each script of bash, and at an exit of one that names trap, such a trap is made one that first writes the state.
// What the loop writes to are files of this process by
// their paths in /proc, because a script that exits out of a function does so with its redirections in force.
type dialect struct {
	name         string // argument 0
	in, out, err int    // numbers of files; sh knows single digits only
	loop         string
	boot         string
	args         []string
}

// atMark begins the last line of a state: the directory of the shell, unless it has control characters in its name.
const atMark = "#at "

// It splits nothing by IFS, which a script may have made something else for good. The loop is one line, so that what bash says of line n of a script names line n.
var bashDialect = &dialect{
	name: "bash",
	in:   63, out: 61, err: 62,
	args: []string{"--noprofile", "--norc"},
	loop: oneLine(`
{ . "$1";
while :; do
while { [[ ! $__agentrun_in ]] || __agentrun_cut "$@"; };
builtin mapfile -t -n 1 -u 63 __agentrun_go && [[ $__agentrun_go ]] && builtin mapfile -t -d '' __agentrun <"$__agentrun_fds/$__agentrun_text" || builtin exit 0;
do builtin eval "${__agentrun[0]}" || :;
__agentrun_in=1;
builtin eval -- "${__agentrun[1]}" <"$__agentrun_stdin" >&61 2>&"$__agentrun_err" 61>&- 62>&- 63<&-;
__agentrun_end end "$?" "$@" || :;
[[ ! $__agentrun_over ]] || builtin exit "$__agentrun_over";
done; done; __agentrun_say; builtin exit 1; } </dev/null >/dev/null 2>&1`),
	boot: `
builtin shift
builtin unset -v BASH_EXECUTION_STRING
builtin shopt -s expand_aliases
__agentrun_save() {
	builtin printf '%s\n' 'builtin unset -v $(builtin compgen -e) 2>/dev/null; builtin unalias -a; builtin set +o posix'
	builtin shopt -p
	builtin declare -f # before posix is on, which has no function exit
	builtin declare -p
	builtin declare -Fx
	builtin alias -p
	builtin trap -p
	builtin umask -p
	builtin printf 'builtin cd -- %q || builtin cd -P -- .\n' "$PWD" # PWD is where it is, also when that is gone
	builtin printf 'builtin set --'; (($#)) && builtin printf ' %q' "$@"
	builtin printf '\n'
	[[ ${__agentrun_term+set} ]] && builtin printf '%s\n' 'TERM=$__agentrun_term; builtin unset -v __agentrun_term'
	builtin set +o
	[[ $PWD == *[[:cntrl:]]* ]] || builtin printf '` + atMark + `%s\n' "$PWD"
}
__agentrun_say() {
	builtin printf 'bash: a break or continue that is in no loop ended the script\n' >&"$__agentrun_err"
}
__agentrun_cut() {
	__agentrun_say
	__agentrun_end end 1 "$@" || :
}
__agentrun_end() {
	__agentrun_in=
	[[ $1 == exit && $BASHPID != $$ ]] && return "$2" # a child that was killed before it was another program
	builtin local __agentrun_undo=
	if [[ $1 == exit && $__agentrun_trap ]]; then
		__agentrun_undo=${__agentrun_back-} # what the script was given is there for its trap, and not in the state
	else
		builtin eval "${__agentrun_back-}" 2>/dev/null || :
	fi
	__agentrun_back=
	[[ $1 == exit && $__agentrun_watched && ${FUNCNAME[1]-} == exit ]] && builtin set -- "$1" "$2" "${__agentrun_args[@]}" # $@ are those of exit
	__agentrun_unwatch || :
	__agentrun_own || :
	[[ $1 == end && $__agentrun_once && $__agentrun_trap ]] && __agentrun_over=$2 && return # and it ends, as a shell with -c does
	if [[ $__agentrun_undo ]]; then
		(builtin eval "$__agentrun_undo" || :; __agentrun_save "${@:3}") >|"$__agentrun_fds/$__agentrun_slot" 2>/dev/null
	else
		{ __agentrun_save "${@:3}"; } >|"$__agentrun_fds/$__agentrun_slot" 2>/dev/null
	fi
	{ builtin printf '%s %s %s %s ' "$__agentrun_call" "$__agentrun_nonce" "$1" "$2"; builtin times; } >>"$__agentrun_fds/$__agentrun_ctl"
	builtin return "$2"
}
__agentrun_own() {
	builtin local __agentrun_status=$? __agentrun_user
	[[ $BASHPID == $$ ]] || builtin return $__agentrun_status
	builtin trap -p EXIT >|"$__agentrun_fds/$__agentrun_slot"
	IFS= builtin read -r -d '' __agentrun_user <"$__agentrun_fds/$__agentrun_slot"
	case $__agentrun_user in
	*'{ __agentrun_end exit '*) builtin return $__agentrun_status ;;
	'') __agentrun_trap= ;;
	*)
		builtin eval "__agentrun_user=${__agentrun_user:8:-6}"
		__agentrun_trap='if { __agentrun_end exit "$?" "$@"; } 2>/dev/null; then'$'\n'$__agentrun_user$'\n{ builtin :; } 2>/dev/null\n'else$'\n'$__agentrun_user$'\n{ builtin :; } 2>/dev/null\n'fi ;; # a text of nothing or a comment is no list
	esac
	builtin trap -- "${__agentrun_trap:-$__agentrun_bare}" EXIT
	builtin return $__agentrun_status
}
__agentrun_watch() { # a trap of the script that replaced ours is seen by exit
	[[ -o posix ]] || builtin declare -F exit || exit() {
		if { __agentrun_own; } 2>/dev/null; then builtin exit "$@"; else builtin exit "$@"; fi
	}
	[[ -o posix || $__agentrun_returns ]] || builtin declare -F trap || trap() { # and then set -e, or a signal, finds ours
		{ builtin trap "$@" 2>&62 && if __agentrun_own; then :; fi; } 62>&2 2>/dev/null
	}
	__agentrun_args=("$@")
	__agentrun_watched=1
}
__agentrun_unwatch() {
	[[ $__agentrun_watched ]] || return
	__agentrun_watched=
	[[ $(builtin declare -f trap) != *__agentrun_own* ]] || builtin unset -f trap
	[[ $(builtin declare -f exit) != *__agentrun_own* ]] || builtin unset -f exit
}
__agentrun_bare='{ __agentrun_end exit "$?" "$@"; } 2>/dev/null'
__agentrun_once= __agentrun_over= __agentrun_trap= __agentrun_watched=
builtin trap -- "$__agentrun_bare" EXIT
`,
}

var shDialect = &dialect{
	name: "sh",
	in:   3, out: 5, err: 6,
	loop: oneLine(`
{ . "$1";
while :; do
while { [ ! "$__agentrun_in" ] || __agentrun_cut; };
read -r __agentrun_err __agentrun_watched <&3 || exit 0;
do __agentrun_in=1;
[ -z "$__agentrun_watched" ] || alias exit=__agentrun_exit;
. "$__agentrun_fds/$__agentrun_text" </dev/null >&5 2>&"$__agentrun_err" 5>&- 6>&- 3<&-;
__agentrun_end end "$?" "$@" || :;
[ ! "$__agentrun_over" ] || exit "$__agentrun_over";
done; done; __agentrun_say; exit 1; } </dev/null >/dev/null 2>&1`),
	boot: `
shift
__agentrun_save() {
	set
	printf '%s' "$__agentrun_aliases"
	export -p
	trap
	printf '%s\n' 'trap -- "${__agentrun_trap:-$__agentrun_bare}" EXIT' # not told while it runs
	printf 'umask '
	umask
	printf '%s\n' 'cd -- "$PWD" || cd -P -- .'
	[ "${__agentrun_term+set}" ] && printf '%s\n' 'TERM=$__agentrun_term; unset __agentrun_term'
	set +o
	case $PWD in *[[:cntrl:]]*) ;; *) printf '` + atMark + `%s\n' "$PWD" ;; esac
}
__agentrun_say() {
	echo 'sh: a break or continue that is in no loop ended the script' >&"$__agentrun_err"
}
__agentrun_cut() {
	__agentrun_say
	__agentrun_end end 1 || :
}
__agentrun_end() {
	__agentrun_in=
	eval "${__agentrun_back-}" 2>/dev/null || :
	__agentrun_back=
	[ "$1" = exit ] || __agentrun_own || : # a trap on EXIT that runs is told no more
	[ "$__agentrun_watched" ] && case $(alias exit 2>/dev/null) in *__agentrun_exit*) unalias exit ;; esac
	[ "$1$__agentrun_once" = end1 ] && [ "$__agentrun_trap" ] && __agentrun_over=$2 && return
	__agentrun_named
	__agentrun_save >|"$__agentrun_fds/$__agentrun_slot" 2>/dev/null
	{ printf '%s %s %s %s ' "$__agentrun_call" "$__agentrun_nonce" "$1" "$2"; times; } >>"$__agentrun_fds/$__agentrun_ctl"
	return "$2"
}
__agentrun_named() { # aliases as commands that make them, those of one line
	alias >|"$__agentrun_fds/$__agentrun_slot"
	__agentrun_aliases='unalias -a
'
	while IFS= read -r __agentrun_line; do
		case $__agentrun_line in
		alias\ *=\'*\') ;;
		*=\'*\') __agentrun_line="alias $__agentrun_line" ;;
		*) continue ;;
		esac
		__agentrun_aliases="$__agentrun_aliases$__agentrun_line
"
	done <"$__agentrun_fds/$__agentrun_slot"
}
__agentrun_own() { # a trap of the script that replaced ours becomes one that first writes the state
	read -r __agentrun_pid __agentrun_line </proc/self/stat
	[ "$__agentrun_pid" = $$ ] || return
	trap >|"$__agentrun_fds/$__agentrun_slot"
	__agentrun_user=
	while IFS= read -r __agentrun_line || [ "$__agentrun_line" ]; do
		__agentrun_user="$__agentrun_user$__agentrun_line
"
	done <"$__agentrun_fds/$__agentrun_slot"
	case $__agentrun_user in
	*__agentrun_end*) return ;;
	esac
	__agentrun_trap=
	[ -z "$__agentrun_user" ] || eval "__agentrun_take ${__agentrun_user#trap }" # that on EXIT comes first, and what is behind it stays as it is
	trap -- "${__agentrun_trap:-$__agentrun_bare}" EXIT
}
__agentrun_take() {
	[ "$1" != -- ] || shift
	case ${2-} in EXIT|0) ;; *) return 0 ;; esac
	[ "$1" ] || return 0
	__agentrun_trap="if $__agentrun_bare 2>/dev/null; then
$1
{ :; } 2>/dev/null
else
$1
{ :; } 2>/dev/null
fi"
}
__agentrun_exit() { # exit is an alias of it while a script runs that may set a trap
	__agentrun_status=$?
	[ $# -gt 0 ] || set -- "$__agentrun_status"
	__agentrun_own 2>/dev/null || :
	exit "$@"
}
__agentrun_bare='{ __agentrun_end exit "$?"; }'
__agentrun_once= __agentrun_over= __agentrun_trap= __agentrun_watched=
trap -- "$__agentrun_bare" EXIT
`,
}

// zsh reads the text as bash does, and its numbers of files are those of sh. What it says of special parameters can not be read again, so only the exported ones among them
// are kept, by value.
var zshDialect = &dialect{
	name: "zsh",
	in:   3, out: 5, err: 6,
	args: []string{"-f"},
	loop: oneLine(`
. "$1";
while :; do
while { [[ -z $__agentrun_in ]] || __agentrun_cut "$@"; };
read -r __agentrun_err <&3 && __agentrun=$(<"$__agentrun_fds/$__agentrun_text") || builtin exit 0;
do builtin eval "${__agentrun%%$'\0'*}" || :;
__agentrun_in=1 __agentrun_args=("$@");
builtin eval "${__agentrun#*$'\0'}" <"$__agentrun_stdin" >&5 2>&"$__agentrun_err" 5>&- 6>&- 3<&-;
__agentrun_status=$?;
builtin trap >|"$__agentrun_fds/$__agentrun_slot" || :;
__agentrun_end end $__agentrun_status "$@" || :;
[[ -z $__agentrun_over ]] || builtin exit $__agentrun_over;
done; done; __agentrun_say; builtin exit 1`),
	boot: `
shift
zmodload zsh/parameter
__agentrun_save() {
	builtin print -r -- 'builtin unalias -m "*"'
	builtin set +o
	builtin emulate -L zsh
	builtin local __agentrun_k
	for __agentrun_k in ${(k)parameters}; do
		case ${parameters[$__agentrun_k]}:$__agentrun_k in
		*local*|*readonly*|*:__agentrun*) ;;
		scalar*export*special*) builtin print -r -- "builtin export $__agentrun_k=${(qqqq)${(P)__agentrun_k}}" ;;
		*special*|*hideval*|*:[0-9]*) ;;
		*) builtin typeset -p -- $__agentrun_k ;;
		esac
	done
	builtin functions
	builtin alias -L
	builtin trap # without that on EXIT, which is the function's
	[[ -z $__agentrun_trap ]] || builtin print -r -- "builtin trap -- ${(qqqq)__agentrun_trap} EXIT"
	builtin print -rn -- 'builtin umask '
	builtin umask
	builtin print -r -- "builtin cd -- ${(qqqq)PWD} || builtin cd -P -- ."
	builtin print -r -- "builtin set -- ${(@qqqq)@}"
	[[ -z ${__agentrun_term+set} ]] || builtin print -r -- "TERM=${(qqqq)__agentrun_term}"
	[[ $PWD == *[[:cntrl:]]* ]] || builtin print -r -- "` + atMark + `$PWD"
}
__agentrun_say() {
	builtin print -r -- 'zsh: a break or continue that is in no loop ended the script' >&$__agentrun_err
}
__agentrun_cut() {
	__agentrun_say
	__agentrun_end end 1 "$@" || :
}
__agentrun_end() {
	__agentrun_in=
	[[ ${functions[TRAPZERR]-} != *__agentrun_failed* ]] || unfunction TRAPZERR
	builtin eval "${__agentrun_back-}" 2>/dev/null || :
	__agentrun_back=
	[[ $1 == exit ]] || __agentrun_own || :
	[[ $1 == end && -n $__agentrun_once && -n $__agentrun_trap ]] && __agentrun_over=$2 && return # and it ends, as a shell with -c does
	{ __agentrun_save "${@:3}"; } >|"$__agentrun_fds/$__agentrun_slot" 2>/dev/null
	{ builtin printf '%s %s %s %s ' "$__agentrun_call" "$__agentrun_nonce" "$1" "$2"; builtin times; } >>"$__agentrun_fds/$__agentrun_ctl"
}
__agentrun_own() { # whether the script has a trap on EXIT: the loop has listed them, a function sees none
	builtin local __agentrun_user="$(<"$__agentrun_fds/$__agentrun_slot")"
	__agentrun_trap=
	[[ $__agentrun_user == *EXIT* && $__agentrun_user != *'__agentrun_end exit'* ]] || return 0
	(( ! $+functions[trap] )) || return 0
	trap() { [[ $3 != EXIT ]] || __agentrun_trap=$2 }
	builtin eval "$__agentrun_user"
	unfunction trap
}
__agentrun_watch() { # set -e runs no zshexit functions; this is before it, and before the trap on EXIT
	[[ -n $__agentrun_trap$1 ]] || return 0
	builtin trap >|"$__agentrun_fds/$__agentrun_slot"
	[[ $+functions[TRAPZERR] == 0 && "$(<"$__agentrun_fds/$__agentrun_slot")" != *ZERR* ]] || return 0
	TRAPZERR() { __agentrun_failed $? }
}
__agentrun_failed() {
	[[ -o errexit && -n $__agentrun_in && $ZSH_SUBSHELL == 0 ]] && __agentrun_end exit $1 "${__agentrun_args[@]}" || :
}
__agentrun_left() { # the shell exits, and a trap of the script was in the place of ours
	[[ -z $__agentrun_in || $ZSH_SUBSHELL != 0 ]] || __agentrun_end exit $? "${__agentrun_args[@]}" || : # or set -e ends it
}
__agentrun_once= __agentrun_over= __agentrun_trap= __agentrun_in=
typeset -ga zshexit_functions
zshexit_functions+=(__agentrun_left)
builtin trap '__agentrun_end exit "$?" "$@"' EXIT
`,
}

// dialectOf tells the dialect by the name of the shell.
func dialectOf(path string) *dialect {
	switch name := filepath.Base(path); {
	case strings.HasPrefix(name, "bash"):
		return bashDialect
	case strings.HasPrefix(name, "zsh"):
		return zshDialect
	}
	return shDialect
}

func oneLine(s string) string { return strings.TrimSpace(strings.ReplaceAll(s, "\n", " ")) }

// booting is what a new shell reads first: the functions of the loop, the state to begin with, and where the files are.
func (d *dialect) booting(fds, text, ctl, state string, once bool) string {
	var b strings.Builder
	b.WriteString(d.boot)
	if once {
		b.WriteString("__agentrun_save() { :; }\n")
	}
	if state != "" {
		b.WriteString(". " + fds + "/" + state + "\n")
	}
	switch {
	case once && d == shDialect:
		b.WriteString("__agentrun_once=1 __agentrun_trap=; trap -- \"$__agentrun_bare\" EXIT\n")
	case once && d == bashDialect: // a copy has no trap of its shell, as a subshell has not
		b.WriteString("__agentrun_once=1 __agentrun_trap=; builtin trap -- \"$__agentrun_bare\" EXIT\n")
	}
	if once && d == zshDialect {
		b.WriteString("__agentrun_once=1 __agentrun_trap=; builtin trap '__agentrun_end exit \"$?\" \"$@\"' EXIT\n")
	}
	b.WriteString("__agentrun_in= __agentrun_fds=" + fds + " __agentrun_text=" + text + " __agentrun_ctl=" + ctl + "\n")
	return b.String()
}

// reloading is what a shell begins a call with whose state is not the last one any more.
func (d *dialect) reloading(fds, text, ctl, state string) string {
	source := ". " + fds + "/" + state + "; "
	if d == bashDialect { // the state has a script of its own in the variable that the loop is about to run
		source = "__agentrun_kept=(\"${__agentrun[@]}\"); " + source + "__agentrun=(\"${__agentrun_kept[@]}\"); builtin unset -v __agentrun_kept; "
	}
	return source + "__agentrun_fds=" + fds + " __agentrun_text=" + text + " __agentrun_ctl=" + ctl + "; "
}

// atTerminal is the loop of a shell that has a terminal: what scripts read is the file that they write to. It is not
// opened by a path, since a sandbox may know of none.
func (d *dialect) atTerminal() string {
	in := "</dev/null"
	if d != shDialect {
		in = `<"$__agentrun_stdin"`
	}
	return strings.Replace(d.loop, in, "<&"+strconv.Itoa(d.out), 1)
}

// keeping notes how the variable k is, for the end of the script: a value that it is given for one script is not for the
// next, since it may be a secret.
func (d *dialect) keeping(k string) string {
	if d == bashDialect {
		return "; __agentrun_k=$(builtin declare -p " + k + " 2>/dev/null) || :" +
			`; __agentrun_back+="builtin unset -v ` + k + `;"; [[ ! $__agentrun_k ]] || __agentrun_back+="builtin declare -g ${__agentrun_k#declare };"; builtin unset -v __agentrun_k`
	}
	was := "__agentrun_was_" + k
	return "; " + was + `=${` + k + `-}; if [ -z "${` + k + `+set}" ]; then __agentrun_back="${__agentrun_back-}unset ` + k + ` ` + was + `; "; else ` +
		`case "$(export -p)" in *"export ` + k + `="*) ` + was + `x="export ` + k + `" ;; *) ` + was + `x=: ;; esac; ` +
		`__agentrun_back="${__agentrun_back-}unset ` + k + `; ` + k + `=\$` + was + `; $` + was + `x; unset ` + was + ` ` + was + `x; "; fi`
}

// text is what the loop reads of a call: what to do first, in silence, and the script.
func (d *dialect) text(before, script string, terminal bool) string {
	switch {
	case d == bashDialect:
		if strings.Contains(script, "trap") {
			returns := "" // a trap on RETURN that is set in a function is run at the end of that
			if strings.Contains(strings.ToUpper(script), "RETURN") {
				returns = "1"
			}
			before += "; __agentrun_returns=" + returns + "; __agentrun_watch \"$@\""
		}
		return before + "\x00" + script + "\x00"
	case d == zshDialect:
		before += "; __agentrun_watch"
		if strings.Contains(script, "trap") {
			before += " 1"
		}
		return before + "\x00" + script
	case terminal:
		return before + "; " + script + "\n"
	}
	return before + "; exec <\"$__agentrun_stdin\"; " + script + "\n"
}
