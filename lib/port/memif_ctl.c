/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Socket of a memif server. One process may serve a path; a second process is rejected by a lock
 * file (PATH.lock) and not by a test connection, which would be an event for the server. A killed
 * server leaves its socket behind, which the driver cannot bind again. The socket is removed if the
 * lock is free and no process listens.
 */
#include "port_pvt.h"

#include "kvr_hook.h"

#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#define SOCKET_PATH 108 /* sun_path */
#define LISTENS	    0x10000u

void kvr_port__argument(const char *device, const char *name, char *out, size_t len)
{
	const size_t n = strlen(name);

	out[0] = '\0';
	for (const char *p = strchr(device, ','); p != NULL; p = strchr(p + 1, ',')) {
		if (strncmp(p + 1, name, n) != 0 || p[1 + n] != '=')
			continue;
		p += 2 + n;
		snprintf(out, len, "%.*s", (int)strcspn(p, ","), p);
		return;
	}
}

/*
 * True if a process of this network namespace listens at @p path. Reads the kernel's table, which
 * the listener does not notice.
 */
static bool is_listened_on(const char *path)
{
	FILE *f = fopen("/proc/net/unix", "re");
	char line[512];
	bool found = false;

	while (f != NULL && !found && fgets(line, sizeof(line), f) != NULL) {
		unsigned int flags;
		int at = 0;

		if (sscanf(line, "%*[^:]: %*x %*x %x %*x %*x %*u %n", &flags, &at) != 1 || at == 0)
			continue;
		line[strcspn(line, "\n")] = '\0';
		found = (flags & LISTENS) != 0 && strcmp(line + at, path) == 0;
	}
	if (f != NULL)
		fclose(f);
	return found;
}

static int in_use(const char *path, struct port_err e)
{
	return kvr_port__fail(
		e, -EADDRINUSE,
		"device: socket \"%s\" is served by another process, allowed: one router for each socket; stop the other or give another path",
		path);
}

/* Lock the file that exists now: its former holder may have removed the one that was opened. */
static int take_lock(const char *path, int *lock, struct port_err e)
{
	struct stat here, there;
	char name[SOCKET_PATH + 8];
	int fd;

	snprintf(name, sizeof(name), "%s.lock", path);
	for (;;) {
		fd = open(name, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
		if (fd < 0)
			return kvr_port__fail(
				e, -errno,
				"device: cannot create \"%s\" (%s), allowed: a socket path in a folder this user may write to",
				name, strerror(errno));
		if (flock(fd, LOCK_EX | LOCK_NB) != 0) {
			close(fd);
			return in_use(path, e);
		}
		if (fstat(fd, &here) == 0 && stat(name, &there) == 0 &&
		    here.st_ino == there.st_ino && here.st_dev == there.st_dev)
			break;
		close(fd);
	}
	*lock = fd;
	return 0;
}

bool kvr_port__memif_client(const struct kvr_port *port)
{
	char role[16];

	if (strncmp(port->conf.device, "net_memif", 9) != 0)
		return false;
	kvr_port__argument(port->conf.device, "role", role, sizeof(role));
	return strcmp(role, "server") != 0 && strcmp(role, "master") != 0;
}

int kvr_port__memif_claim(struct kvr_port *port, struct port_err e)
{
	char role[16], abstract[8], path[SOCKET_PATH], folder[SOCKET_PATH];
	const char *device = port->conf.device;
	struct stat st;
	int rc;

	if (strncmp(device, "net_memif", 9) != 0)
		return 0;
	kvr_port__argument(device, "role", role, sizeof(role));
	kvr_port__argument(device, "socket-abstract", abstract, sizeof(abstract));
	kvr_port__argument(device, "socket", path, sizeof(path));
	if (strcmp(role, "server") != 0 && strcmp(role, "master") != 0)
		return 0;
	if (path[0] == '\0')
		snprintf(path, sizeof(path), "/run/memif.sock"); /* the driver's default */
	if (strcmp(abstract, "no") != 0) {
		char name[SOCKET_PATH + 1];

		snprintf(name, sizeof(name), "@%s", path);
		return is_listened_on(name) ? in_use(path, e) : 0;
	}
	snprintf(folder, sizeof(folder), "%s", path);
	if (access(dirname(folder), R_OK | W_OK) != 0)
		return kvr_port__fail(
			e, -errno,
			"device: socket \"%s\": %s, allowed: a path in a folder this user may write to",
			path, strerror(errno));
	rc = take_lock(path, &port->lock, e);
	if (rc != 0)
		return rc;
	snprintf(port->lock_name, sizeof(port->lock_name), "%s.lock", path);
	if (is_listened_on(path)) /* not a kvroute process */
		return in_use(path, e);
	if (lstat(path, &st) == 0) {
		if (!S_ISSOCK(st.st_mode))
			return kvr_port__fail(
				e, -EEXIST,
				"device: \"%s\" exists and is no socket, allowed: a free path",
				path);
		unlink(path);
	}
	return 0;
}

/* ---- rings of the peer ---- */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct kvr_port *servers[KVR_PORT_MAX];

void kvr_port__memif_enter(struct kvr_port *port)
{
	if (strncmp(port->conf.device, "net_memif", 9) != 0 || kvr_port__memif_client(port))
		return;
	port->wakes = KVR_HOOK; /* app/memif, a hook, reports its rings */
	pthread_mutex_lock(&lock);
	for (size_t i = 0; i < RTE_DIM(servers); i++)
		if (servers[i] == NULL) {
			servers[i] = port;
			break;
		}
	pthread_mutex_unlock(&lock);
}

void kvr_port__memif_leave(struct kvr_port *port)
{
	pthread_mutex_lock(&lock);
	for (size_t i = 0; i < RTE_DIM(servers); i++)
		if (servers[i] == port)
			servers[i] = NULL;
	pthread_mutex_unlock(&lock);
}

static bool serves_socket(const struct kvr_port *port, const char *socket, uint32_t id)
{
	char path[SOCKET_PATH], number[16];

	kvr_port__argument(port->conf.device, "socket", path, sizeof(path));
	kvr_port__argument(port->conf.device, "id", number, sizeof(number));
	return strcmp(path[0] != '\0' ? path : "/run/memif.sock", socket) == 0 &&
	       strtoul(number, NULL, 10) == id;
}

void kvr_port_memif_rings(const char *socket, uint32_t id, uint32_t to_server, uint32_t from_server)
{
	pthread_mutex_lock(&lock);
	for (size_t i = 0; i < RTE_DIM(servers); i++) {
		struct kvr_port *port = servers[i];

		if (port == NULL || !serves_socket(port, socket, id))
			continue;
		/* Relaxed: the caller waits for the lcores before the rings are usable. */
		atomic_store_explicit(&port->rx_on, RTE_MIN(to_server, port->hw),
				      memory_order_relaxed);
		atomic_store_explicit(&port->tx_on, RTE_MIN(from_server, port->hw),
				      memory_order_relaxed);
		kvr_port__gate(port, 1);
	}
	pthread_mutex_unlock(&lock);
}

void kvr_port_memif_connected(const char *socket, uint32_t id)
{
	pthread_mutex_lock(&lock);
	for (size_t i = 0; i < RTE_DIM(servers); i++)
		if (servers[i] != NULL && serves_socket(servers[i], socket, id))
			kvr_port__gate(servers[i], 0);
	pthread_mutex_unlock(&lock);
}

void kvr_port_memif_ring(const char *socket, uint32_t id, uint32_t queue,
			 const struct kvr_port_ring_at *at, void (*pass)(void *arg), void *arg)
{
	pthread_mutex_lock(&lock);
	for (size_t i = 0; i < RTE_DIM(servers); i++)
		if (servers[i] != NULL && serves_socket(servers[i], socket, id))
			kvr_port__wait_ring(servers[i], queue, at, pass, arg);
	pthread_mutex_unlock(&lock);
}

void kvr_port__memif_release(struct kvr_port *port)
{
	if (port->lock <= 0)
		return;
	if (port->lock_name[0] != '\0')
		unlink(port->lock_name);
	close(port->lock);
	port->lock = 0;
}
