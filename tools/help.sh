# Sourced by the other scripts: --help prints the comment at the top of the script.
case ${1:-} in
  -h | --help)
    awk 'NR > 1 && !/^#/ { exit } NR > 1 { sub(/^# ?/, ""); print }' "$0"
    exit 0
    ;;
esac
