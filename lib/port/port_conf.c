/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Keys of a [port NAME] section, checks of their texts, and the rules built from them. Needs no
 * EAL.
 */
#include "kvr_port.h"

#include "port_pvt.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const tx_checksums[] = {"auto", "software", "none", NULL};
static const char *const rx_checksums[] = {"trust", "verify", NULL};
static const char *const answers[] = {"auto", "on", "off", NULL};

#define AT(field) .offset = offsetof(struct kvr_port_conf, field)
#define TEXT(field)                                                                                \
	.type = KVR_OPT_STRING, AT(field), .size = sizeof(((struct kvr_port_conf *)0)->field),     \
	.def = ""
#define NUMBER(field, lo, hi, d) .type = KVR_OPT_U32, AT(field), .min = lo, .max = hi, .def = d
#define CHOICE(field, list, d)	 .type = KVR_OPT_ENUM, AT(field), .choices = list, .def = d

const struct kvr_opt kvr_port_opts[] = {
	{.name = "device",
	 TEXT(device),
	 .help = "vdev with its arguments (net_memif0,role=server), PCI address, DPDK port name or index"},
	{.name = "ipv4", TEXT(ipv4), .help = "the router's IPv4 address on this port"},
	{.name = "ipv6", TEXT(ipv6), .help = "the router's IPv6 address on this port"},
	{.name = "mac", TEXT(mac), .help = "MAC address instead of the device's"},
	{.name = "udp_port", NUMBER(udp_port, 1, 65535, "7650"), .help = "UDP port of the router"},
	{.name = "queues",
	 NUMBER(queues, 0, KVR_PORT_MAX_QUEUES, "0"),
	 .unit = "queues",
	 .help = "pairs of receive and transmit queues of the device; 0 = one for each ingress CPU, if the device has as many. With fewer, frames of one source still go to one CPU"},
	{.name = "rx_descriptors",
	 NUMBER(rx_descriptors, 32, 32768, "1024"),
	 .unit = "descriptors",
	 .help = "per receive queue; adjusted to the driver's steps"},
	{.name = "tx_descriptors",
	 NUMBER(tx_descriptors, 32, 32768, "1024"),
	 .unit = "descriptors",
	 .help = "per transmit queue; adjusted to the driver's steps"},
	{.name = "mbufs",
	 NUMBER(mbufs, 0, 16777215, "0"),
	 .unit = "buffers",
	 .help = "packet buffers of this port; 0 = derived from the sizes of all queues"},
	{.name = "mbuf_cache",
	 NUMBER(mbuf_cache, 0, 512, "256"),
	 .unit = "buffers",
	 .help = "kept by each lcore"},
	{.name = "mtu",
	 NUMBER(mtu, 1280, 9216, "1500"),
	 .unit = "bytes",
	 .help = "largest IP packet, both directions"},
	{.name = "vlan",
	 NUMBER(vlan, 0, 4094, "0"),
	 .help = "only frames with this VLAN id; 0 = untagged and any tag. Answers use the sender's tags"},
	{.name = "tx_checksum",
	 CHOICE(tx_checksum, tx_checksums, "auto"),
	 .help = "auto = by the device when it can; none = no UDP checksum over IPv4"},
	{.name = "rx_checksum",
	 CHOICE(rx_checksum, rx_checksums, "trust"),
	 .help = "UDP checksums that the device did not check: trust or verify. verify accepts the unfinished checksums of veth and virtio"},
	{.name = "answer_arp",
	 CHOICE(answer_arp, answers, "auto"),
	 .help = "answer ARP, neighbour discovery and ping; auto = unless the kernel has the address on this interface"},
	{.name = "answer_rate",
	 NUMBER(answer_rate, 0, 10000000, "10000"),
	 .unit = "answers/s",
	 .help = "per queue, to ARP and neighbour discovery, and as many to ping; 0 = no limit"},
	{.name = "promiscuous",
	 .type = KVR_OPT_BOOL,
	 AT(promiscuous),
	 .def = "false",
	 .help = "also receive frames for other MACs (which are counted and dropped)"},
	{.name = "xdp",
	 .type = KVR_OPT_BOOL,
	 AT(xdp),
	 .def = "on",
	 .help = "net_af_xdp: only UDP to the router's addresses and port bypasses the kernel; off = the driver's own program, which takes every frame"},
	{.name = "xdp_rate",
	 NUMBER(xdp_rate, 0, 100000000, "0"),
	 .unit = "frames/s",
	 .help = "of one source (IPv4 address, IPv6 /64); the XDP program drops frames above the rate; 0 = no limit"},
	{.name = "xdp_burst",
	 NUMBER(xdp_burst, 1, 100000000, "4096"),
	 .unit = "frames",
	 .help = "burst of one source within xdp_rate"},
	{.name = "allow",
	 TEXT(allow),
	 .flags = KVR_OPT_F_LIST,
	 .help = "source prefixes that may reach the router, separated by blanks; empty = all"},
	{.name = "allow_agents",
	 TEXT(allow_agents),
	 .flags = KVR_OPT_F_LIST,
	 .help = "source prefixes within allow whose agents may register workers; empty = all of allow"},
	{.name = "cookie",
	 .type = KVR_OPT_BOOL,
	 AT(cookie),
	 .def = "on",
	 .help = "clients must prove their address before they get more than they send; off where addresses cannot be forged"},
	{.name = "source_rate",
	 NUMBER(source_rate, 0, 100000000, "0"),
	 .unit = "requests/s",
	 .help = "ROUTE and POTENTIAL_LOADS of one source address (IPv4 address, IPv6 /64); 0 = no limit. This limit and the next three apply at each ingress CPU: a source that reaches several queues, through several UDP ports, has the full limit at each"},
	{.name = "source_burst",
	 NUMBER(source_burst, 0, 100000000, "1000"),
	 .unit = "requests",
	 .help = "burst of one source within source_rate"},
	{.name = "source_control",
	 NUMBER(source_control, 0, 1000000, "200"),
	 .unit = "frames/s",
	 .help = "CONNECT and HELLO of one source address, burst 1,024; 0 = no limit"},
	{.name = "source_answers",
	 NUMBER(source_answers, 0, 100000000, "1000"),
	 .unit = "frames/s",
	 .help = "REJECTED to one source address for frames that are malformed, above its rate, or dropped in an overload; the burst is one second's worth; 0 = no limit"},
	{0},
};

static const struct kvr_counter counters[] = {KVR_PORT_COUNTER_LIST(KVR_COUNTER_ROW)
						      KVR_COUNTER_END};

static const struct kvr_equation equations[] = {
	{KVR_TERMS(KVR_PORT_RX_FRAMES),
	 (const uint16_t[]){KVR_PORT_VERDICT_LIST(KVR_COUNTER_ENUM) KVR_TERMS_END}},
	{KVR_TERMS(KVR_PORT_RX_UDP, KVR_PORT_SPREAD_IN),
	 KVR_TERMS(KVR_PORT_RX_KEPT, KVR_PORT_SPREAD_OUT, KVR_PORT_SPREAD_FULL)},
	{KVR_TERMS(KVR_PORT_TX_OFFERED, KVR_PORT_TX_TAKEN),
	 KVR_TERMS(KVR_PORT_TX_SENT, KVR_PORT_TX_DROPPED, KVR_PORT_TX_REFUSED, KVR_PORT_TX_BUFFERED,
		   KVR_PORT_TX_PASSED)},
	{0},
};

const struct kvr_stats_def kvr_port_stats_def = {"port", counters, equations};

int kvr_port__fail(struct port_err e, int rc, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(e.text, e.len, fmt, ap);
	va_end(ap);
	return rc;
}

static int parse_allow(struct kvr_prefix out[], uint16_t *n, const char *key, const char *list,
		       struct port_err e)
{
	char text[sizeof(((struct kvr_port_conf *)0)->allow)], net[46], *save = NULL;
	int rc;

	snprintf(text, sizeof(text), "%s", list);
	for (char *w = strtok_r(text, " \t,", &save); w != NULL;
	     w = strtok_r(NULL, " \t,", &save)) {
		if (*n == KVR_PKT_MAX_ALLOW)
			return kvr_port__fail(e, -EINVAL,
					      "%s: \"%s\" is one too many, allowed: %u prefixes",
					      key, w, KVR_PKT_MAX_ALLOW);
		rc = kvr_prefix_parse(w, &out[*n]);
		if (rc == -ERANGE) /* a single address, or another length, was intended */
			return kvr_port__fail(
				e, -EINVAL,
				"%s: got \"%s\", which has bits beyond its length, allowed: %s%s, or the one address without a length",
				key, w,
				kvr_ip_text((const uint8_t *)out[*n].addr, net, sizeof(net)),
				strchr(w, '/'));
		if (rc != 0)
			return kvr_port__fail(
				e, -EINVAL,
				"%s: got \"%s\", allowed: prefixes such as 10.0.0.0/8 fd00::/8, blank-separated",
				key, w);
		(*n)++;
	}
	return 0;
}

/* The router's address must be one that peers can send to. */
static int parse_own(const char *key, const char *text, int family, uint8_t *out, struct port_err e)
{
	uint8_t ip[16];

	if (text[0] == '\0')
		return 0;
	if (kvr_ip_parse(text, ip) != family ||
	    (family == 4 && (ip[12] == 0 || ip[12] == 127 || ip[12] >= 224)) ||
	    (family == 6 && (ip[0] == 0xff || ip[0] == 0)))
		return kvr_port__fail(
			e, -EINVAL,
			"%s: got \"%s\", allowed: a unicast IPv%d address, not the loopback, no prefix length",
			key, text, family);
	memcpy(out, family == 4 ? ip + 12 : ip, family == 4 ? 4 : 16);
	return 0;
}

/* A unicast MAC address: six bytes in hexadecimal. */
static int check_mac(const char *text, struct port_err e)
{
	unsigned int b[6];
	char rest;

	if (text[0] == '\0')
		return 0;
	if (strlen(text) == 17 && strspn(text, "0123456789abcdefABCDEF:") == 17 &&
	    sscanf(text, "%2x:%2x:%2x:%2x:%2x:%2x%c", &b[0], &b[1], &b[2], &b[3], &b[4], &b[5],
		   &rest) == 6 &&
	    (b[0] & 1) == 0 && (b[0] | b[1] | b[2] | b[3] | b[4] | b[5]) != 0)
		return 0;
	return kvr_port__fail(
		e, -EINVAL, "mac: got \"%s\", allowed: a unicast address such as 02:00:00:00:00:01",
		text);
}

static bool list_contains(const char *const list[], const char *text, size_t len)
{
	for (; *list != NULL; list++)
		if (strlen(*list) == len && strncmp(*list, text, len) == 0)
			return true;
	return false;
}

/* Arguments of the drivers of DPDK 22.11 that profiles and tests use. */
#define DRIVER_ARGS 10
static const struct driver {
	const char *name;
	const char *known[DRIVER_ARGS];
	const char *needed; /* NULL: none */
} drivers[] = {
	{"net_memif",
	 {"id", "role", "bsize", "rsize", "socket", "socket-abstract", "mac", "secret",
	  "zero-copy"},
	 NULL},
	{"net_af_packet",
	 {"iface", "qpairs", "blocksz", "framesz", "framecnt", "qdisc_bypass"},
	 "iface"},
	{"net_af_xdp",
	 {"iface", "start_queue", "queue_count", "shared_umem", "xdp_prog", "busy_budget",
	  "force_copy"},
	 "iface"},
	{"net_tap", {"iface", "remote", "mac"}, NULL},
	{"net_null", {"size", "copy", "no-rx"}, NULL},
	{"net_ring", {"nodeaction"}, NULL},
};

/* "id, role, ...", without zero-copy, which must be off. */
static void list_args(const struct driver *d, char *out, size_t len)
{
	size_t n = 0;

	out[0] = '\0';
	for (size_t i = 0; d->known[i] != NULL && n < len; i++)
		if (strcmp(d->known[i], "zero-copy") != 0)
			n += (size_t)snprintf(out + n, len - n, "%s%s", i != 0 ? ", " : "",
					      d->known[i]);
}

/* Numeric arguments of net_memif. */
static const struct {
	const char *name;
	unsigned long least, most;
	const char *what;
} numbers[] = {
	{"bsize=", 64, 65535, "bytes; 2048 holds a frame of mtu 1500"},
	{"rsize=", 1, 14, "log2 of the frames in a ring; 12 is 4096"},
};

static int check_number(const char *arg, const char *value, size_t n, struct port_err e)
{
	for (size_t i = 0; i < RTE_DIM(numbers); i++) {
		unsigned long v;
		char *end;

		if (strncmp(arg, numbers[i].name, strlen(numbers[i].name)) != 0)
			continue;
		v = strtoul(value, &end, 10);
		if (value[0] < '0' || value[0] > '9' || end != value + n || v < numbers[i].least ||
		    v > numbers[i].most)
			return kvr_port__fail(e, -EINVAL,
					      "device: %.5s: got \"%.*s\", allowed: %lu to %lu %s",
					      arg, (int)n, value, numbers[i].least, numbers[i].most,
					      numbers[i].what);
	}
	return 0;
}

static int check_value(const char *arg, const char *value, size_t n, struct port_err e)
{
	static const char *const roles[] = {"server", "client", "master", "slave", NULL};

	if (strncmp(arg, "role=", 5) == 0 && !list_contains(roles, value, n))
		return kvr_port__fail(e, -EINVAL,
				      "device: role: got \"%.*s\", allowed: server, client", (int)n,
				      value);
	if (strncmp(arg, "zero-copy", 9) == 0 && (n != 2 || strncmp(value, "no", 2) != 0))
		return kvr_port__fail(
			e, -EINVAL,
			"device: zero-copy: got \"%.*s\", allowed: no; the peer could change frames after they have been checked",
			(int)n, value);
	return check_number(arg, value, n, e);
}

/*
 * Drivers do not report bad arguments: net_memif ignores all of them if one is unknown, and becomes
 * a client of its default socket; net_tap and net_ring ignore the unknown one; others fail without
 * a reason.
 */
static int check_args(const struct driver *d, const char *device, struct port_err e)
{
	bool needed = d->needed == NULL;
	char allowed[160];
	int rc;

	list_args(d, allowed, sizeof(allowed));
	for (const char *p = strchr(device, ','); p != NULL; p = strchr(p, ',')) {
		const size_t len = strcspn(++p, "=,"), all = strcspn(p, ",");

		if (!list_contains(d->known, p, len))
			return kvr_port__fail(e, -EINVAL,
					      "device: %s has no argument \"%.*s\", allowed: %s",
					      d->name, (int)len, p, allowed);
		rc = check_value(p, p + len + (len < all), all - len - (len < all), e);
		if (rc < 0)
			return rc;
		needed = needed || (strlen(d->needed) == len && all > len + 1 &&
				    strncmp(p, d->needed, len) == 0);
	}
	return needed ? 0
		      : kvr_port__fail(e, -EINVAL, "device: %s needs %s=NAME, allowed: %s", d->name,
				       d->needed, allowed);
}

static int check_device(const char *device, struct port_err e)
{
	for (size_t i = 0; i < RTE_DIM(drivers); i++)
		if (strncmp(device, drivers[i].name, strlen(drivers[i].name)) == 0)
			return check_args(&drivers[i], device, e);
	return 0;
}

int kvr_port_rules(const struct kvr_port_conf *conf, unsigned int index,
		   struct kvr_pkt_rules *rules, char *err, size_t errlen)
{
	const struct port_err e = {err, errlen};
	struct kvr_local *local = &rules->local;
	int rc;

	memset(rules, 0, sizeof(*rules));
	if (index >= KVR_PORT_MAX)
		return kvr_port__fail(e, -EINVAL, "device: port %u, allowed: %u ports", index + 1,
				      KVR_PORT_MAX);
	rc = parse_own("ipv4", conf->ipv4, 4, local->ip4, e);
	if (rc == 0)
		rc = parse_own("ipv6", conf->ipv6, 6, local->ip6, e);
	if (rc == 0 && conf->ipv4[0] == '\0' && conf->ipv6[0] == '\0')
		rc = kvr_port__fail(e, -EINVAL,
				    "ipv4: neither ipv4 nor ipv6 is given, one is needed");
	if (rc == 0)
		rc = check_mac(conf->mac, e);
	if (rc == 0)
		rc = check_device(conf->device, e);
	if (rc == 0)
		rc = parse_allow(rules->allow, &rules->n_allow, "allow", conf->allow, e);
	if (rc == 0)
		rc = parse_allow(rules->agents, &rules->n_agents, "allow_agents",
				 conf->allow_agents, e);
	local->udp_port = (uint16_t)conf->udp_port;
	local->max_frame4 = (uint16_t)(conf->mtu - 20 - 8);
	local->max_frame6 = (uint16_t)(conf->mtu - 40 - 8);
	local->port = (uint8_t)index;
	rules->vlan = (uint16_t)conf->vlan;
	rules->verify_udp = conf->rx_checksum == KVR_PORT_RX_VERIFY;
	return rc;
}
