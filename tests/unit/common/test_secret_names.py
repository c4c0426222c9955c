"""Which names of settings and options are those of secrets."""

from __future__ import annotations

import pytest

from kafka_pipeline.common.security.secret_names import is_secret


@pytest.mark.parametrize(
    "name",
    [
        "password",
        "db_password",
        "dbPassword",
        "userpassword",
        "PGPASSWORD",
        "sasl.password",
        "ssl.key.password",
        "ssl.key.pem",
        "ssl.keystore.key",
        "sasl.jaas.config",
        "sasl.oauthbearer.client.secret",
        "basic.auth.user.info",
        "schema.registry.basic.auth.user.info",
        "bearer.auth.token",
        "token",
        "access_token",
        "apiToken",
        "clienttoken",
        "api_key",
        "apiKey",
        "api-key",
        "APIKey",
        "AWS_SECRET_ACCESS_KEY",
        "AWS_ACCESS_KEY_ID",
        "passphrase",
        "sfPassword",
        "pem_private_key",
        "credentials",
        "accountKey",
        "connectionString",
        "es.net.http.auth.pass",
        "spark.authenticate.secret",
        "spark.ssl.keyPassword",
        "spark.ssl.keyStorePassword",
        "spark.ssl.ui.trustStorePassword",
        "spark.hadoop.fs.s3a.access.key",
        "spark.hadoop.fs.s3a.bucket.raw.secret.key",
        "spark.hadoop.fs.s3a.session.token",
        "spark.hadoop.fs.s3a.encryption.key",
        "spark.hadoop.fs.s3a.server-side-encryption.key",
        "spark.hadoop.fs.azure.account.key.me.blob.core.windows.net",
        "spark.hadoop.fs.azure.account.oauth2.client.secret.me.dfs.core.windows.net",
        "spark.hadoop.fs.azure.account.oauth2.refresh.token.me",
        "spark.hadoop.fs.azure.sas.raw.me.blob.core.windows.net",
        "spark.hadoop.fs.azure.sas.fixed.token.me",
        "spark.hadoop.google.cloud.auth.service.account.private.key",
        "spark.hadoop.fs.gs.encryption.key",
        "spark.hadoop.fs.adl.oauth2.credential",
        "spark.hadoop.javax.jdo.option.ConnectionPassword",
        "spark.sql.catalog.orders.password",
        "spark.kubernetes.authenticate.submission.oauthToken",
    ],
)
def test_names_of_secrets(name: str) -> None:
    assert is_secret(name)


@pytest.mark.parametrize(
    "name",
    [
        "",
        "url",
        "user",
        "sasl.username",
        "key",
        "keys",
        "key_field",
        "primary_key",
        "partitionColumn",
        "monkey",
        "passenger",
        "bypass_cache",
        "max_tokens",
        "tokenizer",
        "secretary",
        "ssl.key.location",
        "ssl.keystore.location",
        "ssl.keystore.type",
        "console_token_file",
        "control_key_file",
        "sasl.oauthbearer.token.endpoint.url",
        "spark.authenticate",
        "spark.authenticate.secret.file",
        "spark.hadoop.fs.s3a.aws.credentials.provider",
        "spark.hadoop.hadoop.security.credential.provider.path",
        "spark.hadoop.fs.azure.account.auth.type.me",
        "spark.network.crypto.enabled",
        "dbtable",
        "sasl.mechanism",
    ],
)
def test_other_names(name: str) -> None:
    assert not is_secret(name)
