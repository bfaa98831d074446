"""The verbs of ``leveret ctl``: rabbitmqctl's and rabbitmq-diagnostics', with their arguments, columns and banners."""

from __future__ import annotations

import socket
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from leveret.server.control_client import seconds

NODE: Final = f"leveret@{socket.gethostname().partition('.')[0]}"
"""The name of a single node in texts, where rabbitmqctl has ``rabbit@host``."""


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


@dataclass(frozen=True, slots=True)
class Option:
    """An option of one verb.

    Attributes:
        name: without the dashes.
        kind: of its value; ``bool`` for one without.
        letter: its short form, as ``-e``.
    """

    name: str
    kind: Callable[[str], Any] = bool
    default: Any = False
    letter: str = ""

    @property
    def field(self) -> str:
        """The name of the argument on the control socket."""
        return self.name.replace("-", "_")


@dataclass(frozen=True, slots=True)
class Command:
    """One verb.

    Attributes:
        verb: also the verb of the control socket, unless ``actions.ACTIONS`` has a function for it.
        summary: one line for the help page.
        banner: the line printed first, unless quiet; filled from the options.
        usage: positional arguments, ``?`` and ``*`` at the end as argparse's nargs; ``-p`` for the vhost.
        columns: that may be requested; empty: the verb takes no columns.
        shown: the default columns; empty: the verb returns no rows.
        after: printed at the end, unless quiet.
        options: further ones.
        timeout_s: of the verb, unless it is given.
    """

    verb: str
    summary: str
    banner: str = ""
    usage: str = ""
    columns: tuple[str, ...] = ()
    shown: str = ""
    after: str = ""
    options: tuple[Option, ...] = ()
    timeout_s: float = 60.0

    @property
    def positional(self) -> tuple[str, ...]:
        """The names of the positional arguments."""
        return tuple(word.rstrip("?*") for word in self.usage.split() if word != "-p")

    @property
    def is_streamed(self) -> bool:
        """Whether rabbitmqctl gets the rows one by one; an empty list of others is an empty line."""
        return bool(self.columns) and self.verb != "list_vhosts"

    @property
    def has_vhost(self) -> bool:
        return "-p" in self.usage.split()


# Columns in RabbitMQ's order, then the columns that only Leveret has.
QUEUE_COLUMNS: Final = _words("""name durable auto_delete arguments policy pid owner_pid exclusive exclusive_consumer_pid
    exclusive_consumer_tag messages_ready messages_unacknowledged messages messages_ready_ram messages_unacknowledged_ram
    messages_ram messages_persistent message_bytes message_bytes_ready message_bytes_unacknowledged message_bytes_ram
    message_bytes_persistent head_message_timestamp disk_reads disk_writes consumers consumer_utilisation
    consumer_capacity memory slave_pids synchronised_slave_pids state type leader members online
    operator_policy effective_policy_definition messages_paged_out producers single_active_consumer_pid
    single_active_consumer_tag backing_queue_status archive_segments archive_bytes""")
CONNECTION_COLUMNS: Final = _words("""pid name port host peer_port peer_host ssl ssl_protocol ssl_key_exchange ssl_cipher
    ssl_hash peer_cert_subject peer_cert_issuer peer_cert_validity state channels protocol auth_mechanism user vhost timeout
    frame_max channel_max client_properties recv_oct recv_cnt send_oct send_cnt send_pend connected_at""")
CHANNEL_COLUMNS: Final = _words("""pid connection name number user vhost transactional confirm consumer_count
    messages_unacknowledged messages_uncommitted acks_uncommitted messages_unconfirmed prefetch_count global_prefetch_count""")
CONSUMER_COLUMNS: Final = _words("""queue_name channel_pid consumer_tag ack_required prefetch_count active activity_status
    arguments""")
EXCHANGE_COLUMNS: Final = _words("name type durable auto_delete internal arguments policy")
BINDINGS: Final = "source_name source_kind destination_name destination_kind routing_key arguments"
POLICY_COLUMNS: Final = "vhost name pattern apply-to definition priority"
VHOST_COLUMNS: Final = _words("name description tags default_queue_type tracing cluster_state")
UNRESPONSIVE_COLUMNS: Final = _words("name durable auto_delete arguments pid recoverable_slaves")

_SETTING_POLICY: Final = (
    'Setting {} "{{name}}" for pattern "{{pattern}}" to "{{definition}}" '
    'with priority "{{priority}}" for vhost "{{vhost}}" ...'
)
_POLICY_OPTIONS: Final = (Option("priority", int, 0), Option("apply-to", str, "all"))
_UNIT: Final = Option("unit", str, "gb")
_GLOBAL: Final = Option("global")

_USERS: Final = (
    Command(
        "add_user",
        "make a user without permissions",
        'Adding user "{name}" ...',
        "name password?",
        after="Done. Don't forget to grant the user permissions to some virtual hosts! "
        "See 'leveret ctl set_permissions --help' to learn more.",
    ),
    Command(
        "change_password",
        "set a user's password",
        'Changing password for user "{name}" ...',
        "name password?",
    ),
    Command(
        "clear_password",
        "let a user log in with no password any more",
        'Clearing password for user "{name}" ...',
        "name",
    ),
    Command(
        "delete_user", "delete a user and its permissions", 'Deleting user "{name}" ...', "name"
    ),
    Command(
        "set_user_tags",
        "replace a user's tags",
        'Setting tags for user "{name}" to [{tags}] ...',
        "name tags*",
    ),
    Command(
        "authenticate_user",
        "check a password",
        'Authenticating user "{name}" ...',
        "name password?",
    ),
    Command(
        "hash_password",
        "hash a password for a definitions file",
        usage="password?",
        options=(Option("hashing-algorithm", str, "sha256"),),
    ),
    Command("list_users", "users and tags", "Listing users ...", shown="user tags"),
    Command(
        "set_permissions",
        "give a user its patterns on a vhost",
        'Setting permissions for user "{user}" in vhost "{vhost}" ...',
        "-p user configure write read",
    ),
    Command(
        "clear_permissions",
        "take a user's permissions on a vhost away",
        'Clearing permissions for user "{user}" in vhost "{vhost}" ...',
        "-p user",
    ),
    Command(
        "list_permissions",
        "permissions on a vhost",
        'Listing permissions for vhost "{vhost}" ...',
        "-p",
        shown="user configure write read",
    ),
    Command(
        "list_user_permissions",
        "permissions of a user",
        'Listing permissions for user "{user}" ...',
        "user",
        shown="vhost configure write read",
    ),
    Command(
        "set_topic_permissions",
        "limit a user's routing keys at an exchange",
        'Setting topic permissions on "{exchange}" for user "{user}" in vhost "{vhost}" ...',
        "-p user exchange write read",
    ),
    Command(
        "clear_topic_permissions",
        "take these limits away, at one exchange or all",
        'Clearing topic permissions{on} for user "{user}" in vhost "{vhost}" ...',
        "-p user exchange?",
    ),
    Command(
        "list_topic_permissions",
        "topic permissions on a vhost",
        'Listing topic permissions for vhost "{vhost}" ...',
        "-p",
        shown="user exchange write read",
    ),
    Command(
        "list_user_topic_permissions",
        "topic permissions of a user",
        'Listing topic permissions for user "{user}" ...',
        "user",
        shown="vhost exchange write read",
    ),
    Command(
        "set_user_limits",
        "limit a user's connections and channels; DEFINITION is JSON",
        'Setting user limits to "{definition}" for user "{user}" ...',
        "user definition",
    ),
    Command(
        "clear_user_limits",
        "take max-connections, max-channels or all limits of a user away",
        "{clearing}",
        "user limit_type",
    ),
    Command(
        "list_user_limits",
        "limits of a user, or with --global of all",
        "Listing limits for {whose} ...",
        options=(Option("user", str, "guest"), _GLOBAL),
        shown="user limits",
    ),
)

_VHOSTS: Final = (
    Command(
        "add_vhost",
        "make a vhost",
        'Adding vhost "{name}" ...',
        "name",
        options=(
            Option("description", str, ""),
            Option("tags", str, ""),
            Option("default-queue-type", str, ""),
        ),
    ),
    Command(
        "delete_vhost",
        "delete a vhost with all that is in it",
        'Deleting vhost "{name}" ...',
        "name",
    ),
    Command(
        "set_vhost_tags",
        "replace a vhost's tags",
        'Setting tags for virtual host "{name}" to [{tags}] ...',
        "name tags*",
    ),
    Command("list_vhosts", "vhosts", "Listing vhosts ...", columns=VHOST_COLUMNS, shown="name"),
    Command(
        "restart_vhost",
        "start a vhost that is down",
        "Trying to restart vhost '{vhost}' on node '{node}' ...",
        "-p",
    ),
    Command(
        "trace_on",
        "publish copies of the messages of a vhost, or of a share of them, to amq.rabbitmq.trace",
        'Starting tracing for vhost "{vhost}" ...',
        "-p",
        options=(Option("rate", float, 1.0),),
    ),
    Command(
        "trace_off",
        "publish no more copies of messages",
        'Stopping tracing for vhost "{vhost}" ...',
        "-p",
    ),
    Command(
        "set_vhost_limits",
        "limit a vhost's connections and queues; DEFINITION is JSON",
        'Setting vhost limits to "{definition}" for vhost "{vhost}" ...',
        "-p definition",
    ),
    Command(
        "clear_vhost_limits",
        "take a vhost's limits away",
        'Clearing vhost "{vhost}" limits ...',
        "-p",
    ),
    Command(
        "list_vhost_limits",
        "limits of a vhost, or with --global of all",
        "Listing limits for {whose} ...",
        "-p",
        options=(_GLOBAL,),
        shown="vhost limits",
    ),
    Command(
        "set_parameter",
        "set a runtime parameter; VALUE is JSON",
        'Setting runtime parameter "{name}" for component "{component}" to "{value}" in vhost "{vhost}" ...',
        "-p component name value",
    ),
    Command(
        "clear_parameter",
        "take a runtime parameter away",
        'Clearing runtime parameter "{name}" for component "{component}" on vhost "{vhost}" ...',
        "-p component name",
    ),
    Command(
        "list_parameters",
        "runtime parameters of a vhost",
        'Listing runtime parameters for vhost "{vhost}" ...',
        "-p",
        shown="component name value",
    ),
    Command(
        "set_global_parameter",
        "set a parameter of the whole broker; VALUE is JSON",
        'Setting global runtime parameter "{name}" to "{value}" ...',
        "name value",
    ),
    Command(
        "clear_global_parameter",
        "take a parameter of the whole broker away",
        'Clearing global runtime parameter "{name}" ...',
        "name",
    ),
    Command(
        "list_global_parameters",
        "parameters of the whole broker",
        "Listing global runtime parameters ...",
        shown="name value",
    ),
    Command(
        "set_cluster_name",
        "set the name of the cluster that clients are told",
        "Setting cluster name to {name} ...",
        "name",
    ),
    Command(
        "set_policy",
        "make or replace a policy; DEFINITION is JSON",
        _SETTING_POLICY.format("policy"),
        "-p name pattern definition",
        options=_POLICY_OPTIONS,
    ),
    Command(
        "clear_policy",
        "take a policy away",
        'Clearing policy "{name}" on vhost "{vhost}" ...',
        "-p name",
    ),
    Command(
        "list_policies",
        "policies of a vhost",
        'Listing policies for vhost "{vhost}" ...',
        "-p",
        shown=POLICY_COLUMNS,
    ),
    Command(
        "set_operator_policy",
        "make or replace an operator policy, a ceiling for what policies may set",
        _SETTING_POLICY.format("operator policy override"),
        "-p name pattern definition",
        options=_POLICY_OPTIONS,
    ),
    Command(
        "clear_operator_policy",
        "take an operator policy away",
        'Clearing operator policy "{name}" on vhost "{vhost}" ...',
        "-p name",
    ),
    Command(
        "list_operator_policies",
        "operator policies of a vhost",
        'Listing operator policy overrides for vhost "{vhost}" ...',
        "-p",
        shown=POLICY_COLUMNS,
    ),
)

_TRAFFIC: Final = (
    Command(
        "list_queues",
        "queues of a vhost",
        "Timeout: {timeout:.1f} seconds ...\nListing queues for vhost {vhost} ...",
        "-p",
        QUEUE_COLUMNS,
        "name messages",
        options=(Option("online"), Option("offline"), Option("local")),
    ),
    Command(
        "list_unresponsive_queues",
        "queues that do not answer in time",
        "Listing unresponsive queues for vhost {vhost} ...",
        "-p",
        UNRESPONSIVE_COLUMNS,
        "name",
        options=(Option("queue-timeout", seconds, 15.0), Option("local")),
    ),
    Command(
        "purge_queue",
        "drop the ready messages of a queue",
        "Purging queue '{name}' in vhost '{vhost}' ...",
        "-p name",
    ),
    Command(
        "delete_queue",
        "delete a queue",
        "Deleting queue '{name}' on vhost '{vhost}' {conditions}...",
        "-p name",
        options=(Option("if-empty", letter="-e"), Option("if-unused", letter="-u")),
    ),
    Command(
        "list_producers",
        "producers whose duplicates a queue filters",
        "Listing producers of queue '{name}' in vhost '{vhost}' ...",
        "-p name",
        shown="producer epoch sequence used",
    ),
    Command(
        "forget_producer",
        "forget a producer of a queue, by its id in list_producers",
        "Forgetting producer '{producer}' of queue '{name}' in vhost '{vhost}' ...",
        "-p name producer",
    ),
    Command(
        "list_delayed_messages",
        "messages that an x-delayed-message exchange has delayed",
        "Listing messages delayed by exchange '{exchange}' in vhost '{vhost}' ...",
        "-p exchange",
        shown="id due published_to routing_key message_bytes",
    ),
    Command(
        "cancel_delayed_messages",
        "forget delayed messages, by their ids in list_delayed_messages",
        "Cancelling messages delayed by exchange '{exchange}' in vhost '{vhost}' ...",
        "-p exchange ids*",
    ),
    Command(
        "list_exchanges",
        "exchanges of a vhost",
        "Listing exchanges for vhost {vhost} ...",
        "-p",
        EXCHANGE_COLUMNS,
        "name type",
    ),
    Command(
        "list_bindings",
        "bindings of a vhost",
        "Listing bindings for vhost {vhost}...",
        "-p",
        _words(BINDINGS),
        BINDINGS,
    ),
    Command(
        "list_connections",
        "connections",
        "Listing connections ...",
        columns=CONNECTION_COLUMNS,
        shown="user peer_host peer_port state",
    ),
    Command(
        "list_channels",
        "channels",
        "Listing channels ...",
        columns=CHANNEL_COLUMNS,
        shown="pid user consumer_count messages_unacknowledged",
    ),
    Command(
        "list_consumers",
        "consumers of a vhost",
        "Listing consumers in vhost {vhost} ...",
        "-p",
        CONSUMER_COLUMNS,
        "queue_name channel_pid consumer_tag ack_required prefetch_count active arguments",
    ),
    Command(
        "close_connection",
        "close one connection (pid as list_connections shows it)",
        "Closing connection {pid}, reason: {reason}...",
        "pid reason",
    ),
    Command(
        "close_all_connections",
        "close the connections of a vhost, or with --global all",
        "Closing all connections {scope}, reason: {reason}...",
        "-p reason",
        options=(_GLOBAL,),
    ),
    Command(
        "close_all_user_connections",
        "close the connections of a user",
        "Closing connections of user {user}, reason: {reason}...",
        "user reason",
    ),
)

_NODE: Final = (
    Command(
        "set_vm_memory_high_watermark",
        "limit memory: a share of the RAM, or absolute and a size; until the node ends",
        "Setting memory threshold to {setting} ...",
        "threshold*",
    ),
    Command(
        "set_disk_free_limit",
        "limit free disk space: a size, or mem_relative and a multiple; until the node ends",
        "Setting disk free limit to {setting} ...",
        "threshold*",
    ),
    Command(
        "set_log_level",
        "set the level of the log, until the settings are read again",
        'Setting log level to "{level}" ...',
        "level",
    ),
    Command("rotate_logs", "nothing, as in RabbitMQ: SIGHUP opens the log file anew"),
    Command(
        "export_definitions",
        "write the definitions as JSON to a file or -",
        'Exporting definitions in JSON to a file at "{file}" ...',
        "file",
    ),
    Command(
        "import_definitions",
        "read definitions from a JSON file or -",
        "Importing definitions in JSON from {source} ...",
        "file?",
        after="Successfully imported the definitions.",
        options=(Option("unsupported-queues", str, "refuse"),),
    ),
    Command(
        "status",
        "versions, memory, files, listeners and counts of the node",
        "Status of node {node} ...",
        options=(_UNIT,),
    ),
    Command(
        "cluster_status",
        "the nodes of the cluster, and what each says of itself",
        "Cluster status of node {node} ...",
    ),
    Command(
        "forget_cluster_node",
        "remove a node that is down for good, with its durable queues",
        "Removing node {removed} from the cluster",
        "removed",
        options=(Option("dry-run"), Option("offline")),
        timeout_s=600.0,
    ),
    Command(
        "await_online_nodes",
        "wait until so many nodes of the cluster run, this one included",
        "Will wait for at least {count} nodes to join the cluster of {node}. Timeout: {timeout:.0f} seconds.",
        "count",
        timeout_s=300.0,
    ),
    Command(
        "join_cluster",
        "exits with 69, and says how a node joins",
        usage="existing?",
        options=(Option("disc"), Option("ram")),
    ),
    Command("stop_app", "exits with 69, and says how a node is stopped"),
    Command("start_app", "exits with 69, and says how a node is started"),
    Command("reset", "exits with 69, and says how a node leaves its cluster"),
    Command("force_reset", "the same"),
    Command("environment", "the settings in effect", "Application environment of node {node} ..."),
    Command(
        "os_env",
        "environment variables that the node reads",
        "Listing RabbitMQ-specific environment variables defined on node {node}...",
    ),
    Command(
        "report",
        "status, settings and all lists, for support",
        "Reporting server status of node {node} ...",
    ),
    Command(
        "memory_breakdown",
        "parts of the memory in use",
        "Reporting memory breakdown on node {node}...",
        options=(_UNIT,),
    ),
    Command("version", "the version of this command"),
    Command(
        "server_version",
        "the version that the node announces",
        "Asking node {node} for its RabbitMQ version...",
    ),
    Command("await_startup", "wait until the node runs and every vhost serves", timeout_s=300.0),
    Command(
        "wait",
        "wait until a process, which a file may name, is such a node",
        usage="pidfile?",
        options=(Option("pid", int, None, "-P"),),
        timeout_s=10.0,
    ),
    Command(
        "stop",
        "end the node; with a file of its process id, wait until it has ended",
        "Stopping and halting node {node} ...",
        "pidfile?",
        options=(Option("idempotent"),),
    ),
    Command(
        "shutdown",
        "end the node, and wait until it has ended",
        options=(Option("no-wait"), Option("wait")),
        timeout_s=120.0,
    ),
    Command(
        "log_location",
        "the log files",
        "Log file location(s) on node {node} ...",
        options=(Option("all", letter="-a"),),
    ),
    Command(
        "log_tail",
        "the last lines of the log file",
        "Last {number} log lines on node {node} ...",
        options=(Option("number", int, 50, "-N"),),
    ),
    Command(
        "listeners", "the listeners", "Asking node {node} to report its protocol listeners ..."
    ),
    Command(
        "alarms",
        "the alarms in effect",
        "Asking node {node} to report any known resource alarms ...",
    ),
)

_CHECKS: Final = (
    Command(
        "ping",
        "exit with 69 unless the node answers",
        "Will ping {node}. This only checks if the OS process is running and answers at its control socket."
        " Timeout: {timeout_ms:.0f} ms.",
    ),
    Command("is_running", "tell whether the node runs", "Asking node {node} for its status ..."),
    Command(
        "is_booting",
        "tell whether the node is being started",
        "Asking node {node} for its boot status ...",
    ),
    Command(
        "check_running",
        "exit with 69 unless the node runs",
        "Checking if RabbitMQ is running on node {node} ...",
    ),
    Command(
        "check_alarms",
        "exit with 69 if an alarm is raised on any node",
        "Asking node {node} to report any local resource alarms ...",
    ),
    Command(
        "check_local_alarms",
        "exit with 69 if an alarm is raised on this node",
        "Asking node {node} to report any local resource alarms ...",
    ),
    Command(
        "check_virtual_hosts",
        "exit with 69 unless every vhost serves",
        "Checking if all vhosts are running on node {node} ...",
    ),
    Command(
        "check_port_connectivity",
        "exit with 69 unless every listener accepts a connection",
        "Testing TCP connections to all active listeners on node {node} ...",
        timeout_s=30.0,
    ),
    Command(
        "check_port_listener",
        "exit with 69 unless there is a listener on a port",
        "Asking node {node} if there's an active listener on port {port} ...",
        "port",
    ),
    Command(
        "check_protocol_listener",
        "exit with 69 unless there is a listener for a protocol",
        "Asking node {node} if there's an active listener for protocol {protocol} ...",
        "protocol",
    ),
    Command(
        "check_certificate_expiration",
        "exit with 69 if certificates of listeners expire within a time",
        "Checking certificate expiration on node {node} ...",
        options=(Option("within", int, 4), Option("unit", str, "weeks")),
    ),
    Command(
        "node_health_check",
        "list channels and queues, and look for alarms",
        "This command is DEPRECATED and will be removed in a future version.\n"
        "It performs intrusive, opinionated health checks and requires a fully booted node.\n"
        "Use one of the options covered in https://www.rabbitmq.com/monitoring.html#health-checks instead.\n"
        "Timeout: {timeout:.0f} seconds ...\nChecking health of node {node} ...",
        timeout_s=70.0,
    ),
)

COMMANDS: Final = _USERS + _VHOSTS + _TRAFFIC + _NODE + _CHECKS
