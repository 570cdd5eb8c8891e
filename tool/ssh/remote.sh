# What runs on the host, in any POSIX sh. It is sent as one line, behind "n=NONCE m=MARK s=0|1" (remote.go), so a
# comment has a line of its own. The standard input brings two more lines, what comes before the script and the
# script, and then orders; it ends with the connection.
exec 3<&0 4>&2 6>&1 </dev/null 2>/dev/null
IFS= read -r before <&3 && IFS= read -r script <&3 || exit 125
say() { printf '\036%s %s\n' "$n" "$*" >&4; }

# list prints number, parent and session of each process; where only ps tells, its group in place of the session.
list() {
	if [ -r /proc/self/stat ]; then
		cat /proc/[0-9]*/stat | while read -r l; do
			p=${l%% *}
			set -- ${l##*) }
			case $1$p$2$4 in
			Z* | X* | ?*[!0-9]*) ;;
			*) [ "$4" ] && echo "$p $2 $4" ;;
			esac
		done
	else
		ps -A -o pid= -o ppid= -o pgid=
	fi
}

# members sets now to the processes of the run, and adds them to known: who has the mark in the environment that it
# began with, what this shell started, what is in a session with those or below them. me is the watcher.
members() {
	for p in $(grep -ls "AGENTRUN_SSH_RUN=$m" /proc/[0-9]*/environ); do
		p=${p#/proc/}
		p=${p%/environ}
		case $known in *" $p "*) ;; *) known="$known$p " ;; esac
	done
	all=$(list)
	grown=1
	while [ "$grown" ]; do
		grown= now=
		set -- $all
		while [ "$3" ]; do
			p=$1 up=$2 session=$3
			shift 3
			case " $me $$ " in *" $p "*) continue ;; esac
			case "$known" in
			*" $p "*) ;;
			*" $up "* | *" $session "*) known="$known$p " grown=1 ;;
			*)
				[ "$up" = $$ ] || continue
				known="$known$p " grown=1
				;;
			esac
			now="$now $p"
		done
	done
}

pause() { sleep "$1" || sleep 1; }

# ask sends a signal to the processes of the run.
ask() {
	members
	[ "$now" ] || return
	kill "-$1" $now
	kill -CONT $now
}

# gone waits for them, two seconds at most.
gone() {
	i=0
	while [ "$now" ] && [ $i -lt 10 ]; do
		i=$((i + 1))
		pause 0.2
		members
	done
}

# finish kills them, and those who come meanwhile. To find them takes its time where there are thousands of others, so it
# tells that it is at it.
finish() {
	i=0
	say ending
	members
	while [ "$now" ] && [ $i -lt 100 ]; do
		say ending
		kill -STOP $now
		kill -KILL $now
		i=$((i + 1))
		pause 0.02
		members
	done
	say left $now
}

# obey is the watcher.
obey() {
	trap '' INT TERM HUP
	known=' ' me=
	while IFS= read -r order; do
		begin
		case $order in
		KILL) finish; exit ;;
		INT | TERM) ask "$order" ;;
		esac
	done
	begin
	ask INT
	gone
	ask TERM
	gone
	finish
}

begin() {
	[ "$me" ] && return
	me=$(exec sh -c 'echo $PPID')
	kill -USR1 $$
}

ordered=
trap 'ordered=1' USR1
obey <&3 &
watcher=$!
exec 3<&-
shell=sh own=
command -v bash >/dev/null && shell=bash
command -v setsid >/dev/null && own=setsid
e=6
[ "$s" = 1 ] && e=4
say begun
# The shell in between is of the run too, and has to tell how it ended: what it is asked does not end it, and its traps
# are not those of the script.
g=$(trap : INT TERM
{
	printf '%s\n' "$before"
	printf '%b' "$script"
} | AGENTRUN_SSH_RUN=$m $own $shell -c 'echo $$ >&5; IFS= read -r __agentrun_script; eval "$(printf %b "$__agentrun_script")"; exec 5>&-; __agentrun_script=$(cat; echo .); exec </dev/null; eval "unset __agentrun_script; ${__agentrun_script%.}"' $shell 5>&1 >&6 2>&$e 4>&- 6>&-)
status=$?
trap '' USR1
set -- $g
if [ "$ordered" ]; then
	say end "$status" "$2"
	wait "$watcher"
else
	kill -KILL "$watcher"
	if [ "$own" ] && kill -0 "-$1"; then
		pause 0.1
		if kill -TERM "-$1"; then
			set -- "$1" leftover
			i=0
			while [ $i -lt 5 ] && kill -0 "-$1"; do
				i=$((i + 1))
				pause 0.1
			done
			kill -KILL "-$1"
		fi
	fi
	printf '\036%s eof\n' "$n" >&6
	say end "$status" "$2"
fi
exit "$status"
