"""Decides by the name of a setting or an option whether its value is a secret."""

from __future__ import annotations

import re

_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")

# Matches a name's words in lower case, with a dot before and after each: ".account.key.".
_SECRET = re.compile(
    r"\.(?:passwords?|passwd|pwd|passphrase|pass|secrets?|jaas|pem|credentials?|apikey|accesskey"
    r"|secretkey|accountkey|privatekey|sas|bearer"
    r"|(?:access|account|api|auth|client|encryption|private|secret|shared|signing|storage|keystore)"
    r"\.keys?"
    r"|keystring|connection\.string|auth\.user\.info"
    r"|(?:access|auth|bearer|fixed|id|oauth|refresh|session|security)\.tokens?)\."
)
_ENDS_AS_SECRET = re.compile(r"(?:token|password|secret)\.$")
# A name with such an ending describes a secret, or says where it is.
_ABOUT_A_SECRET = re.compile(
    r"\.(?:alias|algorithm|bits|class|column|dir|directory|enabled|endpoint|field|file|length"
    r"|location|mechanism|mode|name|path|protocol|providers?|type|uri|url)\.$"
)


def is_secret(name: str) -> bool:
    """Whether the value of a setting or an option is a secret, judging by its name.

    Names are compared by their words, whatever separates these: `sasl.password`,
    `fs.s3a.secret.key`, `spark.ssl.keyStorePassword` and `AWS_SESSION_TOKEN` are secrets, and so is
    `fs.azure.account.key.<account>…`. Names of files with secrets, such as `console_token_file`,
    are not, nor is a bare `key`, which mostly names a field of a record. A secret inside a value,
    as in `https://user:password@host`, is not found.
    """
    words = f".{'.'.join(_WORD.findall(name)).lower()}."
    if _ABOUT_A_SECRET.search(words):
        return False
    return _SECRET.search(words) is not None or _ENDS_AS_SECRET.search(words) is not None
