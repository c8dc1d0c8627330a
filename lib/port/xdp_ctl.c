/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The XDP program of a kernel interface, drivers-cfg/xdp. DPDK's driver loads, attaches and
 * detaches it (it fills xsks_map with its sockets) and wants a file: it gets one of memory. What
 * else the program needs is written into its maps here, found through the program that is attached.
 *
 * One process may have an interface: it holds a name in the network namespace (an abstract socket),
 * which the kernel takes back when it dies. Its program stays attached then, drops what would be
 * the router's and leaves the rest to the kernel, until the next start detaches it. A program of
 * somebody else is left alone, and the start refused.
 */
#include "port_pvt.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <net/if.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <linux/if_link.h>

#include "kvroute_xdp.h"

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wsign-conversion"
#include "kvroute_xdp.skel.h"
#pragma GCC diagnostic pop

#define PROGRAM	 "kvroute_xdp"
#define PINS	 "/sys/fs/bpf/kvroute-" /* and the interface */
#define MAX_MAPS 16

_Static_assert(KVR_XDP_QUEUES == KVR_PORT_MAX_QUEUES, "a socket for each");
_Static_assert(KVR_XDP_ALLOW == 2 * KVR_PKT_MAX_ALLOW, "a prefix for each of two lists");

static const struct kvr_counter counters[] = {KVR_XDP_COUNT_LIST(KVR_COUNTER_ROW) KVR_COUNTER_END};
const struct kvr_stats_def kvr_port_xdp_stats_def = {"xdp", counters, NULL};
const unsigned int kvr_port_xdp_drops = KVR_XDP_FRAGMENT;

/* ---- the interface ---- */

static int quiet(enum libbpf_print_level level, const char *fmt, va_list ap)
{
	(void)level, (void)fmt, (void)ap;
	return 0;
}

/* Id of the program at the interface, 0: none. */
static uint32_t attached(int ifindex)
{
	LIBBPF_OPTS(bpf_xdp_query_opts, o);

	if (bpf_xdp_query(ifindex, 0, &o) != 0)
		return 0;
	return o.prog_id;
}

/*
 * A program ("prog") or map ("map") that this process has open, as a new descriptor, or -errno.
 * The driver never closes what it has loaded; to open by number takes CAP_SYS_ADMIN, this nothing.
 */
static int find_open(const char *kind, uint32_t id)
{
	DIR *dir = opendir("/proc/self/fd");
	char want[32], is[32];
	int found = -ENOENT;

	if (dir == NULL)
		return -errno;
	snprintf(want, sizeof(want), "anon_inode:bpf-%s", kind);
	for (const struct dirent *d; found < 0 && (d = readdir(dir)) != NULL;) {
		const ssize_t n = readlinkat(dirfd(dir), d->d_name, is, sizeof(is));
		union {
			uint32_t id[2]; /* type and id, of either */
			struct bpf_prog_info prog;
			struct bpf_map_info map;
		} info = {0};
		uint32_t len = strcmp(kind, "map") == 0 ? sizeof(info.map) : sizeof(info.prog);
		const int fd = atoi(d->d_name);

		if (n == (ssize_t)strlen(want) && memcmp(is, want, (size_t)n) == 0 &&
		    bpf_obj_get_info_by_fd(fd, &info, &len) == 0 && info.id[1] == id) {
			found = fcntl(fd, F_DUPFD_CLOEXEC, 0);
			if (found < 0)
				found = -errno;
		}
	}
	closedir(dir);
	return found;
}

static int open_program(uint32_t id)
{
	const int fd = find_open("prog", id);

	return fd >= 0 ? fd : bpf_prog_get_fd_by_id(id);
}

static int open_map(uint32_t id)
{
	const int fd = find_open("map", id);

	return fd >= 0 ? fd : bpf_map_get_fd_by_id(id);
}

static bool is_ours(uint32_t id, char name[BPF_OBJ_NAME_LEN])
{
	const int fd = open_program(id);
	struct bpf_prog_info info = {0};
	uint32_t len = sizeof(info);
	bool ours = false;

	name[0] = '\0';
	if (fd == -EPERM)
		snprintf(name, BPF_OBJ_NAME_LEN, "unreadable");
	if (fd >= 0 && bpf_obj_get_info_by_fd(fd, &info, &len) == 0) {
		snprintf(name, BPF_OBJ_NAME_LEN, "%s", info.name);
		ours = strcmp(info.name, PROGRAM) == 0;
	}
	if (fd >= 0)
		close(fd);
	return ours;
}

static int claim_name(struct kvr_port_xdp *x, struct port_err e)
{
	char name[32];
	int fd;

	snprintf(name, sizeof(name), "kvroute-xdp-%s", x->iface);
	fd = kvr_port__hold(name);
	if (fd == -EADDRINUSE)
		return kvr_port__fail(e, fd,
				      "device: interface \"%s\" is served by another process, "
				      "allowed: one router for each interface",
				      x->iface);
	if (fd < 0)
		return kvr_port__fail(e, fd, "device: no socket: %s", strerror(-fd));
	x->claim = fd;
	return 0;
}

static void pin_path(const struct kvr_port_xdp *x, const char *map, char *out, size_t len)
{
	snprintf(out, len, PINS "%s%s%s", x->iface, map[0] != '\0' ? "/" : "", map);
}

static const char *const pins[] = {"xsks_map", "conf", "allow", "sources", "counts"};

static void unpin(const struct kvr_port_xdp *x)
{
	char path[96];

	for (size_t i = 0; i < RTE_DIM(pins); i++) {
		pin_path(x, pins[i], path, sizeof(path));
		unlink(path);
	}
	pin_path(x, "", path, sizeof(path));
	rmdir(path);
}

/* Detach what a process that died has left; somebody else's program is not ours to take off. */
static int clean_up(struct kvr_port_xdp *x, struct port_err e)
{
	const uint32_t id = attached(x->ifindex);
	char name[BPF_OBJ_NAME_LEN];
	int rc;

	unpin(x);
	if (id == 0)
		return 0;
	if (!is_ours(id, name))
		return kvr_port__fail(
			e, -EBUSY,
			"device: interface \"%s\" has an XDP program already (%s, id "
			"%u), allowed: none, or a dead router's where it can be told; "
			"\"ip link set %s xdp off\" takes it off",
			x->iface, name[0] != '\0' ? name : "nameless", id, x->iface);
	rc = bpf_xdp_detach(x->ifindex, 0, NULL);
	if (rc != 0)
		return kvr_port__fail(e, rc,
				      "device: a dead router's XDP program stays at \"%s\": %s",
				      x->iface, strerror(-rc));
	return 0;
}

static int write_program(struct kvr_port_xdp *x, struct port_err e)
{
	size_t len, done = 0;
	const char *elf = kvroute_xdp__elf_bytes(&len);

	x->elf = memfd_create("kvroute_xdp.bpf.o", MFD_CLOEXEC);
	if (x->elf < 0) {
		x->elf = 0;
		return kvr_port__fail(e, -errno, "xdp: no memory file: %s", strerror(errno));
	}
	while (done < len) {
		const ssize_t n = write(x->elf, elf + done, len - done);

		if (n <= 0)
			return kvr_port__fail(e, -EIO, "xdp: the memory file is short");
		done += (size_t)n;
	}
	return 0;
}

/* Whether this port is to have our program; x->iface and x->ifindex are set in any case. */
static bool wants(const struct kvr_port_conf *c, struct kvr_port_xdp *x)
{
	char given[8];

	kvr_port__argument(c->device, "iface", x->iface, sizeof(x->iface));
	x->ifindex = (int)if_nametoindex(x->iface);
	kvr_port__argument(c->device, "xdp_prog", given, sizeof(given));
	return strncmp(c->device, "net_af_xdp", 10) == 0 && c->xdp && given[0] == '\0';
}

/* What a dead router has left at the interface of a port that has no program of ours: it would drop
 * the frames before a packet socket sees them. What is not known to be ours stays. */
static int take_left(struct kvr_port_xdp *x, struct port_err e)
{
	char name[BPF_OBJ_NAME_LEN];
	const uint32_t id = x->ifindex != 0 ? attached(x->ifindex) : 0;
	int rc;

	if (id == 0 || !is_ours(id, name) || claim_name(x, e) < 0)
		return 0;
	rc = clean_up(x, e);
	close(x->claim);
	return rc;
}

int kvr_port_xdp_off(const struct kvr_port_conf *conf, char *err, size_t errlen)
{
	struct kvr_port_xdp x = {0};
	const struct port_err e = {err, errlen};
	int rc = 0;

	libbpf_set_print(quiet);
	if (!wants(conf, &x))
		return take_left(&x, e);
	/* An interface that is gone has no program; one that is served is its router's. */
	if (x.ifindex == 0 || claim_name(&x, e) < 0)
		return 0;
	rc = clean_up(&x, e);
	close(x.claim);
	return rc;
}

int kvr_port__xdp_claim(struct kvr_port *p, struct port_err e)
{
	struct kvr_port_xdp *x = &p->xdp, none;
	int rc;

	libbpf_set_print(quiet);
	if (!wants(&p->conf, x)) {
		none = *x;
		memset(x, 0, sizeof(*x));
		return take_left(&none, e);
	}
	if (x->ifindex == 0)
		return kvr_port__fail(e, -ENODEV,
				      "device: no interface \"%s\", allowed: one that \"ip link\" "
				      "lists, with iface=NAME",
				      x->iface);
	rc = claim_name(x, e);
	if (rc == 0)
		rc = clean_up(x, e);
	if (rc == 0)
		rc = write_program(x, e);
	if (rc == 0) {
		x->stats = kvr_stats_create(&kvr_port_xdp_stats_def, 1);
		if (x->stats == NULL)
			rc = kvr_port__fail(e, -ENOMEM, "xdp: no memory");
	}
	x->used = rc == 0;
	return rc;
}

void kvr_port__xdp_device(const struct kvr_port *p, char *out, size_t len)
{
	if (p->xdp.used)
		snprintf(out, len, "%s,xdp_prog=/proc/self/fd/%d", p->conf.device, p->xdp.elf);
	else
		snprintf(out, len, "%s", p->conf.device);
}

/* ---- its maps ---- */

/* The attached program's map @p name, or -errno. */
static int find_map(uint32_t prog, const char *name)
{
	uint32_t ids[MAX_MAPS], len = sizeof(struct bpf_prog_info);
	struct bpf_prog_info info = {.nr_map_ids = MAX_MAPS, .map_ids = (uintptr_t)ids};
	int fd = open_program(prog), rc;

	if (fd < 0)
		return fd;
	rc = bpf_obj_get_info_by_fd(fd, &info, &len);
	close(fd);
	if (rc != 0)
		return rc;
	for (uint32_t i = 0; i < RTE_MIN(info.nr_map_ids, (uint32_t)MAX_MAPS); i++) {
		struct bpf_map_info m = {0};

		len = sizeof(m);
		fd = open_map(ids[i]);
		if (fd < 0)
			return fd;
		if (bpf_obj_get_info_by_fd(fd, &m, &len) == 0 && strcmp(m.name, name) == 0)
			return fd;
		close(fd);
	}
	return -ENOENT;
}

/* Under /sys/fs/bpf, for "bpftool map dump pinned"; without a bpffs there is nothing to pin to. */
static void pin(struct kvr_port_xdp *x)
{
	char path[96];

	pin_path(x, "", path, sizeof(path));
	if (mkdir(path, 0700) != 0)
		return;
	x->pinned = true;
	for (size_t i = 0; i < RTE_DIM(pins); i++) {
		const int fd = find_map(x->prog_id, pins[i]);

		pin_path(x, pins[i], path, sizeof(path));
		if (fd < 0 || bpf_obj_pin(fd, path) != 0)
			x->pinned = false;
		if (fd >= 0)
			close(fd);
	}
	if (!x->pinned)
		unpin(x);
}

int kvr_port__xdp_set_up(struct kvr_port *p, struct port_err e)
{
	struct kvr_port_xdp *x = &p->xdp;
	char name[BPF_OBJ_NAME_LEN];
	int rc;

	if (!x->used)
		return 0;
	close(x->elf);
	x->elf = 0;
	x->prog_id = attached(x->ifindex);
	if (x->prog_id == 0 || !is_ours(x->prog_id, name))
		return kvr_port__fail(e, -EIO, "xdp: the program is not attached to \"%s\"",
				      x->iface);
	x->conf = find_map(x->prog_id, "conf");
	x->counts = find_map(x->prog_id, "counts");
	x->allow = find_map(x->prog_id, "allow");
	rc = x->conf < 0 ? x->conf : x->counts < 0 ? x->counts : x->allow;
	if (rc >= 0)
		rc = kvr_port__xdp_allow(p);
	if (rc < 0)
		return kvr_port__fail(e, rc,
				      "xdp: the maps of the program cannot be %s: "
				      "%s" KVR_PORT_XDP_NEEDS,
				      rc == -EPERM ? "opened" : "filled", strerror(-rc));
	x->cpus = (unsigned int)libbpf_num_possible_cpus();
	pin(x);
	return 0;
}

struct kvr_stats *kvr_port_xdp_stats(struct kvr_port *p)
{
	struct kvr_port_xdp *x = &p->xdp;
	uint64_t *cpu;

	if (!x->used || x->counts <= 0)
		return x->stats;
	cpu = calloc(x->cpus, sizeof(*cpu));
	for (uint32_t i = 0; cpu != NULL && i < KVR_XDP_COUNTS; i++) {
		uint64_t sum = 0;

		if (bpf_map_lookup_elem(x->counts, &i, cpu) != 0)
			continue;
		for (unsigned int k = 0; k < x->cpus; k++)
			sum += cpu[k];
		kvr_stats_set(kvr_stats_row(x->stats, 0), i, sum);
	}
	free(cpu);
	return x->stats;
}

void kvr_port__xdp_gone(struct kvr_port *p)
{
	struct kvr_port_xdp *x = &p->xdp;

	if (x->pinned)
		unpin(x);
	x->pinned = false;
	x->prog_id = 0;
	if (x->claim > 0)
		close(x->claim);
	x->claim = 0;
}

void kvr_port__xdp_release(struct kvr_port *p)
{
	struct kvr_port_xdp *x = &p->xdp;

	if (x->prog_id != 0 && attached(x->ifindex) == x->prog_id) /* the driver has not */
		bpf_xdp_detach(x->ifindex, 0, NULL);
	if (x->pinned)
		unpin(x);
	if (x->conf > 0)
		close(x->conf);
	if (x->allow > 0)
		close(x->allow);
	if (x->counts > 0)
		close(x->counts);
	if (x->elf > 0)
		close(x->elf);
	if (x->claim > 0)
		close(x->claim);
	kvr_stats_destroy(x->stats);
	memset(x, 0, sizeof(*x));
}
