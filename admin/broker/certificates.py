"""A certificate authority that lives as long as it is in use, for a Kafka on this machine."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

VALID_DAYS = 3650

# Clocks that are a little behind must not refuse a new certificate.
_EARLIER = timedelta(days=1)


@dataclass(frozen=True, slots=True)
class Authority:
    """Issues certificates. Its key is only in memory: once it is gone, nobody can issue more."""

    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey

    @classmethod
    def make(cls, name: str) -> Authority:
        """Return a new authority; two of them never accept each other's certificates."""
        key = ec.generate_private_key(ec.SECP256R1())
        builder = _certificate(name, name, key.public_key(), timedelta(days=VALID_DAYS))
        usage = _key_usage(is_authority=True)
        builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), True)
        builder = builder.add_extension(usage, True)
        return cls(builder.sign(key, hashes.SHA256()), key)

    @property
    def pem(self) -> str:
        """The certificate of the authority, which everybody may know."""
        return self.certificate.public_bytes(Encoding.PEM).decode()

    def issue(
        self, name: str, hosts: Sequence[str] = (), valid: timedelta = timedelta(days=VALID_DAYS)
    ) -> str:
        """Return a new private key and its certificate, in PEM: Kafka and librdkafka read both.

        Args:
            name: the common name, and so the name of the principal.
            hosts: host names and IP addresses of a server; none for a client.
            valid: how long from now; a negative time makes a certificate that has expired.
        """
        key = ec.generate_private_key(ec.SECP256R1())
        issuer = self.certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)[0].value
        builder = _certificate(name, str(issuer), key.public_key(), valid)
        purposes = [ExtendedKeyUsageOID.CLIENT_AUTH]
        if hosts:
            # A broker is also a client of the other brokers.
            purposes.append(ExtendedKeyUsageOID.SERVER_AUTH)
            names = x509.SubjectAlternativeName([_host(host) for host in hosts])
            builder = builder.add_extension(names, False)
        builder = builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), True)
        builder = builder.add_extension(_key_usage(is_authority=False), True)
        builder = builder.add_extension(x509.ExtendedKeyUsage(purposes), False)
        signed = builder.sign(self.key, hashes.SHA256())
        # The only format of keys that Kafka reads.
        secret = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        return (secret + signed.public_bytes(Encoding.PEM)).decode()


def _certificate(
    name: str, issuer: str, key: ec.EllipticCurvePublicKey, valid: timedelta
) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    begin = min(now, now + valid) - _EARLIER
    return (
        x509.CertificateBuilder()
        .subject_name(_name(name))
        .issuer_name(_name(issuer))
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(begin)
        .not_valid_after(now + valid)
    )


def _name(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _host(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _key_usage(*, is_authority: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=is_authority,
        crl_sign=is_authority,
        encipher_only=False,
        decipher_only=False,
    )
