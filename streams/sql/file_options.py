"""The options with which tables of files are read, for each format, by their names in Spark 4.

Others are refused: some name more files (`paths`, `avroSchemaUrl`, `rowValidationXSDPath`), or
classes (`codec`).
"""

from __future__ import annotations

from collections.abc import Mapping


def _names(words: str) -> frozenset[str]:
    return frozenset(words.split())


_ANY = _names(
    """
    pathGlobFilter recursiveFileLookup modifiedBefore modifiedAfter timeZone ignoreCorruptFiles
    ignoreMissingFiles
    """
)
_REBASED = frozenset({"datetimeRebaseMode"})
_TEXTS = _names(
    """
    mode columnNameOfCorruptRecord dateFormat timeFormat timestampFormat timestampNTZFormat
    encoding charset locale multiLine samplingRatio singleVariantColumn
    """
)
_CSV = _names(
    """
    charToEscapeQuoteEscaping columnPruning comment delimiter emptyValue
    enableDateTimeParsingFallback enforceSchema escape header ignoreLeadingWhiteSpace
    ignoreTrailingWhiteSpace inferSchema inputBufferSize lineSep maxCharsPerColumn maxColumns
    nanValue negativeInf nullValue positiveInf preferDate quote sep unescapedQuoteHandling
    """
)
_JSON = _names(
    """
    allowBackslashEscapingAnyCharacter allowComments allowNonNumericNumbers
    allowNumericLeadingZeros allowSingleQuotes allowUnquotedControlChars allowUnquotedFieldNames
    dropFieldIfAllNull enableDateTimeParsingFallback explodeEmbeddedArray inferTimestamp lineSep
    prefersDecimal primitivesAsString useUnsafeRow
    """
)
_XML = _names(
    """
    arrayElementName attributePrefix excludeAttribute ignoreNamespace ignoreSurroundingSpaces
    inferSchema nullValue preferDate prefersDecimal rootTag rowTag useLegacyXMLParser
    validateName valueTag wildcardColName
    """
)
_AVRO = _names(
    """
    avroSchema enableStableIdentifiersForUnionType ignoreExtension mode positionalFieldMatching
    recursiveFieldMaxDepth stableIdentifierPrefixForUnionType
    """
)
_WRITTEN = {
    "csv": frozenset({"quoteAll", "escapeQuotes"}),
    "json": frozenset(
        {"ignoreNullFields", "pretty", "sortKeys", "writeNonAsciiCharacterAsCodePoint"}
    ),
    "xml": frozenset({"declaration", "indent"}),
}

FILE_OPTIONS: Mapping[str, frozenset[str]] = {
    "parquet": _ANY | _REBASED | {"mergeSchema", "int96RebaseMode"},
    "orc": _ANY | {"mergeSchema"},
    "avro": _ANY | _REBASED | _AVRO,
    "csv": _ANY | _TEXTS | _CSV,
    "json": _ANY | _TEXTS | _JSON,
    "xml": _ANY | _TEXTS | _XML,
    "text": _ANY | {"encoding", "lineSep", "wholetext"},
    "binaryfile": _ANY,
    "image": _ANY | {"dropInvalid"},
    "libsvm": _ANY | {"numFeatures", "vectorType"},
    "delta": frozenset({"versionAsOf", "timestampAsOf"}),
}
"""The formats whose path is a file or a folder, in lower case, and their options."""

FUNCTION_OPTIONS: Mapping[str, frozenset[str]] = {
    format_: FILE_OPTIONS[format_] | written for format_, written in _WRITTEN.items()
}
"""The options of functions such as `from_csv` and `to_csv`, by format."""


def unknown_option(options: Mapping[str, object], known: frozenset[str]) -> str | None:
    """Return an option that is not known, if there is one; Spark ignores case."""
    names = {name.lower() for name in known}
    return next((option for option in options if option.lower() not in names), None)
