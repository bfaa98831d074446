"""Logins, permissions and topic permissions, with RabbitMQ's texts.

Tests: broker/vhost/patterns.py
"""

from __future__ import annotations

import pytest

from leveret.amqp.errors import AccessRefused, NotAllowed
from leveret.broker.vhost import patterns
from leveret.broker.vhost.auth import access as access_module
from leveret.broker.vhost.auth.access import Access, LoginRefused, User
from leveret.broker.vhost.patterns import PatternError, compile_pattern
from leveret.metadata.passwords import SHA512, hash_password
from leveret.metadata.tables import Contents, PermissionRow, TopicPermissionRow, UserRow

GUEST = [
    UserRow("guest", hash_password(b"guest", b"salt"), tags=["administrator"]),
    PermissionRow("guest", "/", ".*", ".*", ".*"),
]


def loaded(*rows: object) -> Access:
    contents = Contents()
    for row in (*GUEST, *rows):
        contents.add(row)  # type: ignore[arg-type]
    access = Access()
    access.load(contents)
    return access


@pytest.fixture
def access() -> Access:
    bob = UserRow(
        "bob", hash_password(b"pw", b"tlas", SHA512), SHA512, ["impersonator"], {"max-channels": 2}
    )
    return loaded(bob, UserRow("mute"), PermissionRow("bob", "/", "^conf", "write", ""))


@pytest.fixture
def bob(access: Access) -> User:
    return access.users["bob"]


# Logins.


@pytest.mark.parametrize("name", ["guest", b"guest"])
@pytest.mark.parametrize("password", ["guest", b"guest"])
def test_guest_logs_in_from_the_machine_itself(
    access: Access, name: str | bytes, password: str | bytes
) -> None:
    user = access.authenticate(name, password, "PLAIN", from_loopback=True)

    assert user.name == "guest"
    assert user.tags == {"administrator"}


@pytest.mark.parametrize(
    ("name", "password", "from_loopback", "reason"),
    [
        ("guest", "wrong", True, "user 'guest' - invalid credentials"),
        ("guest", "", True, "user 'guest' - invalid credentials"),
        ("nobody", "guest", True, "user 'nobody' - invalid credentials"),
        ("", "nobody", True, "user '' - invalid credentials"),
        ("mute", "", True, "user 'mute' - invalid credentials"),
        ("guest", "guest", False, "user 'guest' can only connect via localhost"),
        ("guest", "wrong", False, "user 'guest' - invalid credentials"),
    ],
)
def test_a_refused_login_says_nothing_to_the_client(
    access: Access, name: str, password: str, from_loopback: bool, reason: str
) -> None:
    with pytest.raises(LoginRefused) as refused:
        access.authenticate(name, password, "AMQPLAIN", from_loopback)

    assert str(refused.value) == (
        "ACCESS_REFUSED - Login was refused using authentication mechanism AMQPLAIN. "
        "For details see the broker logfile."
    )
    assert refused.value.reason == reason


def test_other_users_come_from_anywhere(access: Access) -> None:
    user = access.authenticate("bob", b"pw", "PLAIN", from_loopback=False)

    assert (user.tags, user.limits) == ({"impersonator"}, {"max-channels": 2})


def test_loopback_users_can_be_set() -> None:
    access = Access(loopback_users=())
    access.put(UserRow("admin", hash_password(b"secret", b"salt")))

    assert access.authenticate("admin", "secret", "PLAIN", from_loopback=False).name == "admin"


def test_a_changed_user_is_the_same_object_for_its_connections(access: Access, bob: User) -> None:
    access.put(UserRow("bob", hash_password(b"new", b"salt"), tags=["management"]))

    assert access.authenticate("bob", b"new", "PLAIN", False) is bob
    assert bob.tags == {"management"}
    with pytest.raises(LoginRefused):
        access.authenticate("bob", b"pw", "PLAIN", False)


# Permissions.


def test_no_permission_is_no_access_to_the_vhost(access: Access, bob: User) -> None:
    access.check_vhost(bob, "/")

    with pytest.raises(NotAllowed) as refused:
        access.check_vhost(access.users["mute"], "/")
    assert str(refused.value) == "NOT_ALLOWED - access to vhost '/' refused for user 'mute'"
    with pytest.raises(NotAllowed):
        access.check_vhost(bob, "other")


@pytest.mark.parametrize(
    ("name", "permission", "allowed"),
    [
        ("conf", "configure", True),
        ("configured", "configure", True),
        ("my conf", "configure", False),
        ("write", "write", True),
        ("do write it", "write", True),
        ("writ", "write", False),
        ("anything", "read", False),
        ("", "read", False),  # the nameless exchange is called amq.default here
    ],
)
def test_patterns_are_searched_anywhere_and_the_empty_one_grants_nothing(
    access: Access, bob: User, name: str, permission: str, allowed: bool
) -> None:
    for _ in range(2):  # the second is answered from the cache
        for check in (access.check_exchange, access.check_queue):
            if check == access.check_queue and not name:
                continue
            if allowed:
                check(bob, "/", name, permission)
            else:
                with pytest.raises(AccessRefused):
                    check(bob, "/", name, permission)


@pytest.mark.parametrize(
    ("check", "name", "text"),
    [
        ("check_queue", "x1", "queue 'x1' in vhost '/' refused for user 'bob'"),
        ("check_exchange", "x1", "exchange 'x1' in vhost '/' refused for user 'bob'"),
        ("check_exchange", "", "exchange 'amq.default' in vhost '/' refused for user 'bob'"),
    ],
)
def test_refusals_read_like_rabbitmqs(
    access: Access, bob: User, check: str, name: str, text: str
) -> None:
    with pytest.raises(AccessRefused) as refused:
        getattr(access, check)(bob, "/", name, "write")

    assert str(refused.value) == f"ACCESS_REFUSED - access to {text}"


def test_a_revoked_permission_is_revoked_at_once(access: Access, bob: User) -> None:
    access.check_queue(bob, "/", "conf", "configure")

    access.remove([PermissionRow("bob", "/", "", "", "")])

    with pytest.raises(AccessRefused):
        access.check_queue(bob, "/", "conf", "configure")
    with pytest.raises(NotAllowed):
        access.check_vhost(bob, "/")
    access.remove([PermissionRow("bob", "/", "", "", "")])


def test_a_replaced_permission_counts_at_once(access: Access, bob: User) -> None:
    access.check_queue(bob, "/", "conf", "configure")

    access.put(PermissionRow("bob", "/", "^other", "", ""))

    access.check_queue(bob, "/", "other", "configure")
    with pytest.raises(AccessRefused):
        access.check_queue(bob, "/", "conf", "configure")


def test_a_pattern_that_cannot_be_read_changes_nothing(access: Access, bob: User) -> None:
    epoch = access.epoch

    with pytest.raises(PatternError, match=r"invalid regular expression '\(': missing \) at 1"):
        access.put(PermissionRow("bob", "/", "(", ".*", ".*"))

    assert access.permissions["bob", "/"].configure == "^conf"
    access.check_queue(bob, "/", "conf", "configure")
    assert access.epoch == epoch


def test_granted_checks_are_kept_within_a_bound(
    access: Access, bob: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(access_module, "GRANTED_MAX", 10)

    for number in range(100):
        access.check_queue(bob, "/", f"conf{number}", "configure")

    assert 0 < len(access._granted) <= 10


def test_no_check_is_kept_of_a_user_who_may_do_everything(access: Access) -> None:
    for number in range(100):
        access.check_queue(access.users["guest"], "/", f"queue{number}", "configure")

    assert not access._granted


# Topic permissions.


@pytest.mark.parametrize(
    ("key", "permission", "allowed"),
    [
        (b"bob.a", "write", True),
        (b"alice.a", "write", False),
        (b"", "write", False),
        (b"/", "read", True),
        (b"bob", "read", False),
    ],
)
def test_topic_patterns_hold_the_names_of_user_and_vhost(
    access: Access, bob: User, key: bytes, permission: str, allowed: bool
) -> None:
    access.put(TopicPermissionRow("bob", "/", "amq.topic", r"^{username}\.", "^{vhost}$"))

    if allowed:
        access.check_topic(bob, "/", "amq.topic", key, permission)
    else:
        with pytest.raises(AccessRefused):
            access.check_topic(bob, "/", "amq.topic", key, permission)


def test_a_topic_refusal_reads_like_rabbitmqs(access: Access, bob: User) -> None:
    access.put(TopicPermissionRow("bob", "/", "amq.topic", "^a", ""))

    with pytest.raises(AccessRefused) as refused:
        access.check_topic(bob, "/", "amq.topic", b"zzz", "write")

    assert str(refused.value) == (
        "ACCESS_REFUSED - access to topic 'zzz' in exchange 'amq.topic' in vhost '/' "
        "refused for user 'bob'"
    )


def test_without_a_topic_permission_every_key_is_allowed(access: Access, bob: User) -> None:
    access.put(TopicPermissionRow("bob", "/", "amq.topic", "", ""))

    access.check_topic(bob, "/", "another", b"zzz", "write")
    access.check_topic(access.users["guest"], "/", "amq.topic", b"zzz", "write")


def test_a_users_name_is_not_a_pattern() -> None:
    access = loaded(UserRow(".*"), TopicPermissionRow(".*", "/", "t", "^{username}$", ""))
    user = access.users[".*"]

    access.check_topic(user, "/", "t", b".*", "write")
    with pytest.raises(AccessRefused):
        access.check_topic(user, "/", "t", b"else", "write")


def test_a_removed_topic_permission_limits_nothing(access: Access, bob: User) -> None:
    row = TopicPermissionRow("bob", "/", "a", "^x", "")
    access.put(row)
    with pytest.raises(AccessRefused):
        access.check_topic(bob, "/", "a", b"y", "write")

    access.remove([row])

    access.check_topic(bob, "/", "a", b"y", "write")
    assert access.topic_permissions == {}


# Rows removed along with users and vhosts.


def test_a_deleted_user_takes_its_permissions_along(access: Access, bob: User) -> None:
    topic = TopicPermissionRow("bob", "v", "t", "", "")
    access.put(topic)

    gone = access.rows_of_user("bob")
    access.remove(gone)

    assert gone == [bob.row, PermissionRow("bob", "/", "^conf", "write", ""), topic]
    with pytest.raises(LoginRefused):
        access.authenticate("bob", b"pw", "PLAIN", True)
    with pytest.raises(AccessRefused):  # of a connection that is still there
        access.check_queue(bob, "/", "conf", "configure")
    assert access.rows_of_user("bob") == []


def test_a_deleted_vhost_takes_all_permissions_along(access: Access, bob: User) -> None:
    topic = TopicPermissionRow("bob", "/", "t", "", "")
    access.put(topic)

    gone = access.rows_of_vhost("/")
    access.remove(gone)

    assert [row.key for row in gone] == [("guest", "/"), ("bob", "/"), ("bob", "/", "t")]
    with pytest.raises(NotAllowed):
        access.check_vhost(bob, "/")


def test_every_change_moves_the_epoch() -> None:
    access = Access()
    changes = [
        lambda: access.put(UserRow("u")),
        lambda: access.put(PermissionRow("u", "/", "", "", "")),
        lambda: access.put(TopicPermissionRow("u", "/", "t", "", "")),
        lambda: access.remove([TopicPermissionRow("u", "/", "t", "", "")]),
        lambda: access.remove([PermissionRow("u", "/", "", "", "")]),
        lambda: access.remove([UserRow("u")]),
    ]

    for change in changes:
        before = access.epoch
        change()
        assert access.epoch > before


# Regular expressions.


@pytest.mark.parametrize(
    ("pattern", "text", "found"),
    [
        ("^a", "ab", True),
        ("é", "caf\u00e9", True),
        ("^.{2}$", "é", True),  # bytes, as in Erlang without the unicode option
        ("(?i)ABC", "xabc", True),
        (r"^\Qa.b*\E$", "a.b*", True),
        (r"^\Qa.b*\E$", "aXb", False),
        (r"\Qa.", "a.", True),
        (r"a\z", "a", True),
        (r"a\z", "a\n", False),
        (r"a\Z", "a\n", True),
        (r"^[[:alnum:]_]+$", "aZ9_", True),
        (r"^[[:alnum:]]+$", "a-", False),
        (r"^[^[:space:]]+$", "a b", False),
        (r"^[[:punct:]]+$", "[]-^.", True),
        (r"^\h$", "\t", True),
        (r"(?<word>a)\k", None, False),
        (r"^(?<word>a|b)(?P=word)$", "aa", True),
        (r"(?<=a)b", "ab", True),
        (r"a++b", "aab", True),
        (r"^(?>a|ab)c", "abc", False),
        (r"\\z", "\\z", True),
        (r"[\]]", "]", True),
        (r"^(?!amq\.).*", "amq.topic", False),
        (r"^(?!amq\.).*", "orders", True),
        (r"^\X$", "a", True),
        (r"^(a(?1)?b)$", "aabb", True),
        (r"(?x) a b  # a comment", "ab", True),
        (r"b|^c", "ab", True),
        (r"b|^c", "ac", False),
    ],
)
def test_expressions_mean_what_they_mean_in_pcre(
    pattern: str, text: str | None, found: bool
) -> None:
    if text is None:
        with pytest.raises(PatternError):
            compile_pattern(pattern)
        return
    assert compile_pattern(pattern).finds(text.encode()) is found


@pytest.mark.parametrize(
    "pattern",
    [
        "(",
        "a)",
        "[",
        "*a",
        "a{2,1}",
        "(?R)",
        "(?<1>a)",
        "(*UTF8)a",
        "a(*SKIP)b|c",
        "a(*PRUNE:n)b",
        "a\ud800",
    ],
)
def test_expressions_that_cannot_be_read_are_refused(pattern: str) -> None:
    with pytest.raises(PatternError) as refused:
        compile_pattern(pattern)

    assert refused.value.pattern == pattern


# The bound on their work.

NAME_BYTES = 255
COSTLY = [
    r"^([a-z0-9]+-?)*\.jobs$",
    r"^(a+)+$",
    r"(.*a){20}$",
    r".*.*.*.*.*[xy]",
    r"(?:.{0,100}){3}[xy]",
    r"(?=.*.*.*.*.*[xy])z?",
    ".?" * 60 + "[xy]",
    r"([ab]*)\1*\1*[xy]",
    "(a)?" * 1000 + "(?:a|aa)+[xy]",
]


@pytest.mark.parametrize("pattern", COSTLY, ids=range(len(COSTLY)))
@pytest.mark.parametrize("name", ["a" * 26 + "!", "a" * (NAME_BYTES - 1) + "!", "ab-" * 85])
def test_a_search_ends_within_its_bound(pattern: str, name: str) -> None:
    assert not compile_pattern(pattern).finds(name.encode())


def test_a_search_that_is_stopped_finds_nothing_and_is_logged_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    pattern = compile_pattern("^(a+)+$|^stopped$")

    assert not pattern.finds(b"a" * 254 + b"!")
    assert not pattern.finds(b"a" * 250 + b"\x1b[2J")
    assert pattern.finds(b"a" * NAME_BYTES)

    (record,) = caplog.records
    assert record.levelname == "WARNING"
    assert "pattern=^(a+)+$|^stopped$" in record.getMessage()
    assert 'reason="match limit exceeded"' in record.getMessage()


def test_the_bound_covers_all_places_where_a_match_may_begin(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(patterns, "PATTERN_STEPS_MAX", 1_000)

    # A few hundred steps from each place.
    assert not patterns.compile_pattern("(?:a?){7}[xyz]").finds(b"a" * NAME_BYTES)

    assert "match limit exceeded" in caplog.text


@pytest.mark.parametrize(
    "pattern",
    [
        "((a{100}){100}){100}",
        "a" * 100_000,
        "(a|b)" * 20_000,
        "(" * 300 + "a" + ")" * 300,
    ],
)
def test_expressions_that_would_grow_too_large_are_refused(pattern: str) -> None:
    with pytest.raises(PatternError):
        compile_pattern(pattern)


def test_a_stored_permission_that_cannot_be_read_grants_nothing_and_is_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    access, contents = Access(), Contents()
    contents.add(UserRow("u"))
    contents.add(PermissionRow("u", "/", "(?R)", ".*", ".*"))
    contents.add(TopicPermissionRow("u", "/", "t", "(?R)", ".*"))

    access.load(contents)

    user = access.users["u"]
    access.check_vhost(user, "/")
    access.check_queue(user, "/", "q", "read")
    access.check_topic(user, "/", "t", b"k", "read")
    with pytest.raises(AccessRefused):
        access.check_queue(user, "/", "q", "configure")
    with pytest.raises(AccessRefused):
        access.check_topic(user, "/", "t", b"k", "write")
    assert [record.levelname for record in caplog.records] == ["ERROR"] * 2
    assert "user=u vhost=/" in caplog.text
