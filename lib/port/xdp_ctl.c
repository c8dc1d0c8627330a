/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * XDP program of a kernel interface (drivers-cfg/xdp). DPDK's driver loads, attaches and detaches
 * it and fills xsks_map with its sockets. The driver requires a file, which is a memory file here.
 * The other maps are written here; they are found through the attached program.
 *
 * One process may own an interface: it holds a name in the network namespace (an abstract socket),
 * which the kernel releases when the process dies. Its program then stays attached, drops the
 * router's frames and passes the rest to the kernel, until the next start detaches it. A foreign
 * program is left in place and the start fails.
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
#define PINS	 "/sys/fs/bpf/kvroute-" /* followed by the interface */
#define MAX_MAPS 16

_Static_assert(KVR_XDP_QUEUES == KVR_PORT_MAX_QUEUES, "a socket for each");
_Static_assert(KVR_XDP_ALLOW == 2 * KVR_PKT_MAX_ALLOW, "a prefix for each of two lists");

static const struct kvr_counter counters[] = {KVR_XDP_COUNT_LIST(KVR_COUNTER_ROW) KVR_COUNTER_END};
const struct kvr_stats_def kvr_port_xdp_stats_def = {"xdp", counters, NULL};
const unsigned int kvr_port_xdp_drops = KVR_XDP_FRAGMENT;

/* ---- the interface ---- */

static int ignore_message(enum libbpf_print_level level, const char *fmt, va_list ap)
{
	(void)level, (void)fmt, (void)ap;
	return 0;
}

/* Id of the program attached to the interface; 0 = none. */
static uint32_t attached_program(int ifindex)
{
	LIBBPF_OPTS(bpf_xdp_query_opts, o);

	if (bpf_xdp_query(ifindex, 0, &o) != 0)
		return 0;
	return o.prog_id;
}

/*
 * Duplicate a descriptor of a program ("prog") or map ("map") that this process has open. @return
 * the descriptor or -errno. The driver never closes what it has loaded. Opening by id would need
 * CAP_SYS_ADMIN.
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
			uint32_t id[2]; /* type and id, of both structs */
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

static int claim_name(struct kvr_port_xdp *xdp, struct port_err e)
{
	char name[32];
	int fd;

	snprintf(name, sizeof(name), "kvroute-xdp-%s", xdp->iface);
	fd = kvr_port__hold(name);
	if (fd == -EADDRINUSE)
		return kvr_port__fail(
			e, fd,
			"device: interface \"%s\" is served by another process, allowed: one router for each interface",
			xdp->iface);
	if (fd < 0)
		return kvr_port__fail(e, fd, "device: no socket: %s", strerror(-fd));
	xdp->claim = fd;
	return 0;
}

static void pin_path(const struct kvr_port_xdp *xdp, const char *map, char *out, size_t len)
{
	snprintf(out, len, PINS "%s%s%s", xdp->iface, map[0] != '\0' ? "/" : "", map);
}

static const char *const pins[] = {"xsks_map", "conf", "allow", "sources", "counts"};

static void unpin_maps(const struct kvr_port_xdp *xdp)
{
	char path[96];

	for (size_t i = 0; i < RTE_DIM(pins); i++) {
		pin_path(xdp, pins[i], path, sizeof(path));
		unlink(path);
	}
	pin_path(xdp, "", path, sizeof(path));
	rmdir(path);
}

/* Detach the program of a dead router; a foreign program is an error. */
static int clean_up(struct kvr_port_xdp *xdp, struct port_err e)
{
	const uint32_t id = attached_program(xdp->ifindex);
	char name[BPF_OBJ_NAME_LEN];
	int rc;

	unpin_maps(xdp);
	if (id == 0)
		return 0;
	if (!is_ours(id, name))
		return kvr_port__fail(
			e, -EBUSY,
			"device: interface \"%s\" has an XDP program already (%s, id %u), allowed: none, or an identifiable one of a dead router; \"ip link set %s xdp off\" removes it",
			xdp->iface, name[0] != '\0' ? name : "nameless", id, xdp->iface);
	rc = bpf_xdp_detach(xdp->ifindex, 0, NULL);
	if (rc != 0)
		return kvr_port__fail(
			e, rc, "device: cannot detach a dead router's XDP program from \"%s\": %s",
			xdp->iface, strerror(-rc));
	return 0;
}

static int write_program(struct kvr_port_xdp *xdp, struct port_err e)
{
	size_t len, done = 0;
	const char *elf = kvroute_xdp__elf_bytes(&len);

	xdp->elf = memfd_create("kvroute_xdp.bpf.o", MFD_CLOEXEC);
	if (xdp->elf < 0) {
		xdp->elf = 0;
		return kvr_port__fail(e, -errno, "xdp: cannot create a memory file: %s",
				      strerror(errno));
	}
	while (done < len) {
		const ssize_t n = write(xdp->elf, elf + done, len - done);

		if (n <= 0)
			return kvr_port__fail(e, -EIO, "xdp: cannot write the memory file");
		done += (size_t)n;
	}
	return 0;
}

/* True if this port uses our program. xdp->iface and xdp->ifindex are set in any case. */
static bool wants_program(const struct kvr_port_conf *c, struct kvr_port_xdp *xdp)
{
	char given[8];

	kvr_port__argument(c->device, "iface", xdp->iface, sizeof(xdp->iface));
	xdp->ifindex = (int)if_nametoindex(xdp->iface);
	kvr_port__argument(c->device, "xdp_prog", given, sizeof(given));
	return strncmp(c->device, "net_af_xdp", 10) == 0 && c->xdp && given[0] == '\0';
}

/*
 * Detach the program of a dead router from the interface of a port without our program: it would
 * drop the frames before a packet socket receives them. A program that is not known to be ours
 * stays.
 */
static int take_left(struct kvr_port_xdp *xdp, struct port_err e)
{
	char name[BPF_OBJ_NAME_LEN];
	const uint32_t id = xdp->ifindex != 0 ? attached_program(xdp->ifindex) : 0;
	int rc;

	if (id == 0 || !is_ours(id, name) || claim_name(xdp, e) < 0)
		return 0;
	rc = clean_up(xdp, e);
	close(xdp->claim);
	return rc;
}

int kvr_port_xdp_off(const struct kvr_port_conf *conf, char *err, size_t errlen)
{
	struct kvr_port_xdp x = {0};
	const struct port_err e = {err, errlen};
	int rc = 0;

	libbpf_set_print(ignore_message);
	if (!wants_program(conf, &x))
		return take_left(&x, e);
	/* A removed interface has no program; that of a served interface is in use. */
	if (x.ifindex == 0 || claim_name(&x, e) < 0)
		return 0;
	rc = clean_up(&x, e);
	close(x.claim);
	return rc;
}

int kvr_port__xdp_claim(struct kvr_port *port, struct port_err e)
{
	struct kvr_port_xdp *xdp = &port->xdp, none;
	int rc;

	libbpf_set_print(ignore_message);
	if (!wants_program(&port->conf, xdp)) {
		none = *xdp;
		memset(xdp, 0, sizeof(*xdp));
		return take_left(&none, e);
	}
	if (xdp->ifindex == 0)
		return kvr_port__fail(
			e, -ENODEV,
			"device: no interface \"%s\", allowed: one that \"ip link\" lists, with iface=NAME",
			xdp->iface);
	rc = claim_name(xdp, e);
	if (rc == 0)
		rc = clean_up(xdp, e);
	if (rc == 0)
		rc = write_program(xdp, e);
	if (rc == 0) {
		xdp->stats = kvr_stats_create(&kvr_port_xdp_stats_def, 1);
		if (xdp->stats == NULL)
			rc = kvr_port__fail(e, -ENOMEM, "xdp: out of memory");
	}
	xdp->used = rc == 0;
	return rc;
}

void kvr_port__xdp_device(const struct kvr_port *port, char *out, size_t len)
{
	if (port->xdp.used)
		snprintf(out, len, "%s,xdp_prog=/proc/self/fd/%d", port->conf.device,
			 port->xdp.elf);
	else
		snprintf(out, len, "%s", port->conf.device);
}

/* ---- its maps ---- */

/* Map @p name of the attached program, or -errno. */
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

/* Pin the maps under /sys/fs/bpf, for "bpftool map dump pinned", if a bpffs is mounted there. */
static void pin_maps(struct kvr_port_xdp *xdp)
{
	char path[96];

	pin_path(xdp, "", path, sizeof(path));
	if (mkdir(path, 0700) != 0)
		return;
	xdp->pinned = true;
	for (size_t i = 0; i < RTE_DIM(pins); i++) {
		const int fd = find_map(xdp->prog_id, pins[i]);

		pin_path(xdp, pins[i], path, sizeof(path));
		if (fd < 0 || bpf_obj_pin(fd, path) != 0)
			xdp->pinned = false;
		if (fd >= 0)
			close(fd);
	}
	if (!xdp->pinned)
		unpin_maps(xdp);
}

int kvr_port__xdp_set_up(struct kvr_port *port, struct port_err e)
{
	struct kvr_port_xdp *xdp = &port->xdp;
	char name[BPF_OBJ_NAME_LEN];
	int rc;

	if (!xdp->used)
		return 0;
	close(xdp->elf);
	xdp->elf = 0;
	xdp->prog_id = attached_program(xdp->ifindex);
	if (xdp->prog_id == 0 || !is_ours(xdp->prog_id, name))
		return kvr_port__fail(e, -EIO, "xdp: the program is not attached to \"%s\"",
				      xdp->iface);
	xdp->conf = find_map(xdp->prog_id, "conf");
	xdp->counts = find_map(xdp->prog_id, "counts");
	xdp->allow = find_map(xdp->prog_id, "allow");
	rc = xdp->conf < 0 ? xdp->conf : xdp->counts < 0 ? xdp->counts : xdp->allow;
	if (rc >= 0)
		rc = kvr_port__xdp_allow(port);
	if (rc < 0)
		return kvr_port__fail(
			e, rc, "xdp: the maps of the program cannot be %s: %s" KVR_PORT_XDP_NEEDS,
			rc == -EPERM ? "opened" : "filled", strerror(-rc));
	xdp->cpus = (unsigned int)libbpf_num_possible_cpus();
	pin_maps(xdp);
	return 0;
}

struct kvr_stats *kvr_port_xdp_stats(struct kvr_port *port)
{
	struct kvr_port_xdp *xdp = &port->xdp;
	uint64_t *cpu;

	if (!xdp->used || xdp->counts <= 0)
		return xdp->stats;
	cpu = calloc(xdp->cpus, sizeof(*cpu));
	for (uint32_t i = 0; cpu != NULL && i < KVR_XDP_COUNTS; i++) {
		uint64_t sum = 0;

		if (bpf_map_lookup_elem(xdp->counts, &i, cpu) != 0)
			continue;
		for (unsigned int k = 0; k < xdp->cpus; k++)
			sum += cpu[k];
		kvr_stats_set(kvr_stats_row(xdp->stats, 0), i, sum);
	}
	free(cpu);
	return xdp->stats;
}

void kvr_port__xdp_gone(struct kvr_port *port)
{
	struct kvr_port_xdp *xdp = &port->xdp;

	if (xdp->pinned)
		unpin_maps(xdp);
	xdp->pinned = false;
	xdp->prog_id = 0;
	if (xdp->claim > 0)
		close(xdp->claim);
	xdp->claim = 0;
}

void kvr_port__xdp_release(struct kvr_port *port)
{
	struct kvr_port_xdp *xdp = &port->xdp;

	if (xdp->prog_id != 0 &&
	    attached_program(xdp->ifindex) == xdp->prog_id) /* the driver did not detach it */
		bpf_xdp_detach(xdp->ifindex, 0, NULL);
	if (xdp->pinned)
		unpin_maps(xdp);
	if (xdp->conf > 0)
		close(xdp->conf);
	if (xdp->allow > 0)
		close(xdp->allow);
	if (xdp->counts > 0)
		close(xdp->counts);
	if (xdp->elf > 0)
		close(xdp->elf);
	if (xdp->claim > 0)
		close(xdp->claim);
	kvr_stats_destroy(xdp->stats);
	memset(xdp, 0, sizeof(*xdp));
}
