#!/bin/bash
# OpenSSH and clush. usage: ssh_peer.sh one|fast|master|clush loop|logs N; the fleet's folder in BENCH_FLEET.
P=$BENCH_FLEET; W=$(( $3 < 50 ? $3 : 50 )); HOSTS=$(head -"$3" "$P/hosts.txt" | cut -d' ' -f1)
case $1 in fast) CFG=$P/ssh_config_fast ;; master) CFG=$P/ssh_config_cm ;; *) CFG=$P/ssh_config ;; esac
DO='test -s ~/unit.service && uname -r && wc -c < ~/unit.service && sha256sum ~/unit.service'
export P CFG DO
one() { ssh -F "$CFG" "$1" "cat > ~/.unit.tmp && mv ~/.unit.tmp ~/unit.service && $DO" < "$P/unit.service"; }
master() {
  scp -q -F "$CFG" "$P/unit.service" "$1:.unit.tmp" && ssh -n -F "$CFG" "$1" 'mv ~/.unit.tmp ~/unit.service' &&
  ssh -n -F "$CFG" "$1" 'test -s ~/unit.service' && ssh -n -F "$CFG" "$1" 'uname -r' &&
  ssh -n -F "$CFG" "$1" 'wc -c < ~/unit.service' && ssh -n -F "$CFG" "$1" 'sha256sum ~/unit.service'
  rc=$?; ssh -F "$CFG" -O exit "$1" 2>/dev/null; return $rc
}
copy() { scp -q -F "$CFG" "$1:$P/remote/log20m" "$P/out/$1.log"; }
cat_() { ssh -n -F "$CFG" "$1" "cat $P/remote/log20m" > "$P/out/$1.log"; }
export -f one master copy cat_
each() { echo "$HOSTS" | xargs -P "$W" -I{} bash -c "$1 {}"; }
LIST=$(echo "$HOSTS" | paste -sd,)
case $1$2 in
  clushloop)
    clush -q -o "-F $CFG" -f "$W" -w "$LIST" --copy "$P/unit.service" --dest .unit.tmp &&
    exec clush -S -o "-F $CFG" -f "$W" -w "$LIST" "mv ~/.unit.tmp ~/unit.service && $DO" ;;
  clushlogs) exec clush -q -o "-F $CFG" -f "$W" -w "$LIST" --rcopy "$P/remote/log20m" --dest "$P/out" ;;
  masterloop) each master ;;
  oneloop | fastloop) each one ;;
  fastlogs) each cat_ ;;
  *logs) each copy ;;
esac
