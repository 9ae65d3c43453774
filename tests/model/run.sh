#!/bin/sh
# SPDX-License-Identifier: MIT
# Checks the models with spin: the design has no error, every mutant has one. A line for each; exit 1 if one is not
# as it should be.
here=$(cd "$(dirname "$0")" && pwd) || exit 1
sh "$here/../setup.sh" test || exit 1
dir=$(mktemp -d) || exit 1
trap 'rm -rf "$dir"' EXIT
cd "$dir" || exit 1
failed=0

# run NAME ERRORS MODEL -DFLAG...
run() {
	name=$1 want=$2 model=$3
	shift 3
	spin -a "$@" "$here/$model" >spin.out 2>&1 && cc -O0 -w -DSAFETY -o pan pan.c || { cat spin.out; exit 1; }
	./pan -m1000000 >pan.out 2>&1
	errors=$(grep -oE 'errors: [0-9]+' pan.out | head -1 | grep -oE '[0-9]+')
	states=$(grep -oE '[0-9]+ states, stored' pan.out)
	word=ok
	grep -q 'max search depth too small' pan.out && word="DEPTH"
	[ "${errors:-none}" = "$want" ] || word="FAILED, wanted $want"
	[ "$word" = ok ] || failed=1
	printf '%-50s errors %s, %s: %s\n' "$name" "${errors:-none}" "$states" "$word"
}

create() { n=$1 e=$2; shift 2; run "create: $n" "$e" create_intent.pml "$@"; }
create "no crash" 0 -DMAXCRASH=0
create "2 crashes" 0
create "4 crashes" 0 -DMAXCRASH=4
create "short horizon, with sweep" 0 -DSHORT_H
create "mutant: POST again" 1 -DNAIVE_RETRY
create "mutant: no intent" 1 -DNO_INTENT
create "mutant: short horizon, no sweep" 1 -DSHORT_H -DNO_SWEEP
create "mutant: answer before commit" 1 -DACK_FIRST
create "mutant: sweep ignores intents" 1 -DSWEEP_EAGER

lease() { n=$1 e=$2; shift 2; run "lease: $n" "$e" lease_kill.pml "$@"; }
lease "no crash" 0 -DMAXCRASH=0
lease "2 crashes" 0
lease "4 crashes" 0 -DMAXCRASH=4
lease "mutant: not decided again" 1 -DNO_RECHECK
lease "mutant: answer before commit" 1 -DACK_FIRST
lease "mutant: forgotten in a restart" 1 -DNO_PROOF
lease "mutant: DELETE before commit" 1 -DSEND_FIRST
lease "mutant: counted when committed" 1 -DLATE_COUNT

claim() { n=$1 e=$2; shift 2; run "claim or reap: $n" "$e" claim_reap.pml "$@"; }
claim "no crash" 0 -DMAXCRASH=0
claim "2 crashes" 0
claim "4 crashes" 0 -DMAXCRASH=4
claim "mutant: not decided again" 1 -DNO_RECHECK
claim "mutant: answer before commit" 1 -DACK_FIRST
claim "mutant: DELETE before commit" 1 -DSEND_FIRST
claim "mutant: one that is being killed" 1 -DBLIND_CLAIM

forks() { n=$1 e=$2; shift 2; run "fork: $n" "$e" fork.pml "$@"; }
forks "no crash" 0 -DMAXCRASH=0
forks "1 crash" 0
forks "2 crashes" 0 -DMAXCRASH=2
forks "mutant: POST again" 1 -DNAIVE_RETRY
forks "mutant: not known what was there" 1 -DNO_KNOWN
forks "mutant: a relative is not waited for" 1 -DNOT_BUSY
forks "mutant: two in doubt, first wins" 1 -DNOT_MIXED
forks "mutant: two in doubt, one closed" 1 -DALONE
forks "mutant: short horizon" 1 -DSHORT_H
forks "mutant: answer before commit" 1 -DACK_FIRST

shifts() { n=$1 e=$2; shift 2; run "pause, resume: $n" "$e" pause_resume.pml "$@"; }
shifts "no crash" 0 -DMAXCRASH=0
shifts "2 crashes" 0
shifts "4 crashes" 0 -DMAXCRASH=4
shifts "mutant: extends by ConnectSandbox" 1 -DEXTEND_BY_CONNECT
shifts "mutant: no turns" 1 -DNO_TURNS
shifts "mutant: old answers are believed" 1 -DSTALE_IS_BELIEVED
shifts "mutant: a lost answer is a no" 1 -DNO_LOOK

hosts() { n=$1 e=$2; shift 2; run "two hosts: $n" "$e" two_hosts.pml "$@"; }
hosts "no crash" 0 -DMAXCRASH=0
hosts "2 crashes" 0
hosts "rows of any host are taken" 0 -DNO_HOST_CHECK
hosts "mutant: a copy is not noticed" 1 -DNO_CLONE_CHECK
hosts "mutant: it keeps its id" 1 -DKEEPS_ID
hosts "mutant: any tag is ours" 1 -DANY_TAG
hosts "mutant: the second copy stays" 1 -DNO_HOST_CHECK -DBACKUP_STAYS
hosts "mutant: the id goes first" 1 -DNO_HOST_CHECK -DID_FIRST

warm() { n=$1 e=$2; shift 2; run "warm claim: $n" "$e" warm_claim.pml "$@"; }
warm "no crash" 0 -DMAXCRASH=0
warm "2 crashes" 0
warm "4 crashes, 2 losses" 0 -DMAXCRASH=4 -DMAXLOSS=2
warm "mutant: answer before commit" 1 -DACK_FIRST
warm "mutant: no record" 1 -DNO_RECORD
warm "mutant: it stays in its entry" 1 -DNO_LOCK
warm "mutant: a missing line stays missing" 1 -DNO_AGAIN
warm "mutant: given after lost rows" 1 -DGIVES_OLD
exit $failed
