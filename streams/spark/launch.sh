# Bash reads this file before the scripts that start Spark's JVM; see `corrected_launcher`.

exec() {
  # A class path that names a jar before its folder: conf:jars/slf4j-api-2.0.17.jar:jars/*
  local word command=() twice='^(.*:)([^:]*/)slf4j-api-[^:/]*[.]jar:([^:]*/)[*]$'
  for word; do
    if [[ $word =~ $twice && ${BASH_REMATCH[2]} == "${BASH_REMATCH[3]}" ]]; then
      word="${BASH_REMATCH[1]}${BASH_REMATCH[3]}*"
    fi
    [[ $word == --add-modules=jdk.incubator.vector ]] || command+=("$word")
  done
  # The JVM and all that it starts have nothing to do with this file.
  [[ $1 == */spark-class ]] || unset BASH_ENV
  builtin exec "${command[@]}"
}
