# Bash reads this file before the scripts that start Spark's JVM; see `without_incubator_module`.

exec() {
  local word command=()
  for word; do
    [[ $word == --add-modules=jdk.incubator.vector ]] || command+=("$word")
  done
  # The JVM and all that it starts have nothing to do with this file.
  [[ $1 == */spark-class ]] || unset BASH_ENV
  builtin exec "${command[@]}"
}
