"""The executable reference of the variable queue's moves, message by message, with dicts for a disk.

A plain model to compare VariableQueue with, kept as it was written, but for embedded messages, which are
not built, and the change to lazy mode, which here has no exception for the first step.
"""

from collections import deque

INF = float("inf")


class M:
    __slots__ = ("body", "delivered", "idx", "loc", "mid", "persistent", "seq")

    def __init__(self, seq, mid, body, p):
        self.seq = seq
        self.mid = mid
        self.body = body
        self.persistent = p
        self.delivered = False
        self.loc = "mem"
        self.idx = False


class VQ:
    def __init__(
        self, seg=16384, batch=4096, credit=4000, every=1, read_max=2048, target=INF, mode="default"
    ):
        self.seg = seg
        self.batch = batch
        self.credit2 = 2 * credit
        self.every = every
        self.read_max = read_max
        self.target = target
        self.mode = mode
        self.q1 = deque()
        self.q2 = deque()
        self.q3 = deque()
        self.q4 = deque()
        self.d = [None, 0, None]  # start,count,end
        self.nseq = 0
        self.ndel = 0
        self.rpa = {}
        self.dpa = {}
        self.idx = {}
        self.store = {}
        self.ram = 0
        self.len = 0
        self.ops = 0
        self.rates = (0, 0, 0, 0)
        self.blocked = False
        self.writes = 0
        self.reads = 0
        self.mt = 0

    # --- persistence
    def wmsg(self, force, m):
        if (force or m.persistent) and m.loc == "mem":
            self.store[m.mid] = m.body
            m.loc = "store"
            self.writes += 1

    def widx(self, force, m):
        if (force or m.persistent) and not m.idx:
            self.idx[m.seq] = (m.mid, None, m.persistent)
            m.idx = True

    def trim(self, m):
        m.body = None

    def bnd(self, x):
        return (x // self.seg + 1) * self.seg

    # --- public
    def publish(self, mid, body, p=False):
        m = M(self.nseq, mid, body, p)
        self.nseq += 1
        if self.mode == "lazy":
            self.wmsg(True, m)
            self.widx(True, m)
            self.exp(m.seq)
            self.len += 1
        else:
            self.wmsg(False, m)
            self.widx(False, m)
            (self.q1 if self.q3 else self.q4).append(m)
            self.ram += 1
            self.len += 1
        self.mrm()
        return m.seq

    def publish_delivered(self, mid, body, p=False):
        assert self.len == 0
        m = M(self.nseq, mid, body, p)
        self.nseq += 1
        m.delivered = True
        f = self.mode == "lazy"
        self.wmsg(f, m)
        self.widx(f, m)
        self.pend(m)
        self.nd(m.seq)
        self.mrm()
        return m.seq

    def nd(self, q):
        if q == self.ndel:
            self.ndel += 1

    def pend(self, m):
        (self.dpa if m.body is None else self.rpa)[m.seq] = m

    def out(self):
        m = self.q4.popleft() if self.mode != "lazy" and self.q4 else self.f3()
        if m is not None:
            m.delivered = m.seq < self.ndel
        return m

    def f3(self):
        if not self.q3:
            if self.mode == "lazy" and self.d[1]:
                self.d2b()
                return self.f3()
            return None
        m = self.q3.popleft()
        if self.mode != "lazy" and not self.q3:
            if self.d[1] == 0:
                assert not self.q2
                assert not self.q4
                self.q4 = self.q1
                self.q1 = deque()
            else:
                self.d2b()
        return m

    def read(self, m):
        if m.body is not None:
            return m.body
        self.reads += 1
        return self.store[m.mid]

    def fetch(self, ack):
        m = self.out()
        if m is None:
            return None
        self.read(m)
        r = (m.mid, m.delivered, m.seq)
        self.rm(ack, m)
        return r

    def drop(self, ack):
        m = self.out()
        if m is None:
            return None
        r = (m.mid, m.seq)
        self.rm(ack, m)
        return r

    def rm(self, ack, m):
        if m.body is not None:
            self.ram -= 1
        self.len -= 1
        self.nd(m.seq)
        if ack:
            m.delivered = True
            self.pend(m)
        else:
            self.forget(m)

    def forget(self, m):
        if m.loc == "store":
            self.store.pop(m.mid)
        if m.idx:
            self.idx.pop(m.seq)

    def take(self, q):
        for t in (self.rpa, self.dpa):
            if q in t:
                return t.pop(q)
        return None

    def ack(self, tags):
        r = []
        for q in tags:
            m = self.take(q)
            if m:
                self.forget(m)
                r.append(m.mid)
        return r

    def requeue(self, tags):  # noqa: C901  # as it was written
        tags = sorted(tags)
        ids = []

        def merge(tags, q, lim, f):
            front = deque()
            i = 0
            while i < len(tags) and (lim is None or tags[i] < lim):
                if q and q[0].seq < tags[i]:
                    front.append(q.popleft())
                else:
                    m = self.take(tags[i])
                    i += 1
                    if m:
                        f(m)
                        front.append(m)
                        ids.append(m.mid)
                        self.len += 1
            front.extend(q)
            return tags[i:], front

        if self.mode != "lazy":

            def alpha(m):
                if m.body is None:
                    m.body = self.read(m)
                self.ram += 1

            tags, self.q4 = merge(tags, self.q4, self.q3[0].seq if self.q3 else None, alpha)

        def beta(m):
            self.wmsg(True, m)
            self.widx(False, m)
            self.trim(m)
            if m.body is not None:
                self.ram += 1

        tags, self.q3 = merge(tags, self.q3, self.d[0] if self.d[1] else None, beta)
        for q in tags:
            m = self.take(q)
            if m:
                self.wmsg(True, m)
                self.widx(True, m)
                self.exp(q)
                ids.append(m.mid)
                self.len += 1
        self.mrm()
        return ids

    def purge(self):
        n = self.len
        for m in list(self.q4):
            self.rm(False, m)
        self.q4.clear()
        if self.mode == "lazy":
            self.d2b()
        while self.q3:
            for m in list(self.q3):
                self.rm(False, m)
            self.q3.clear()
            self.d2b()
        for m in list(self.q1):
            self.rm(False, m)
        self.q1.clear()
        return n

    def unacked(self, q):
        return q in self.rpa or q in self.dpa

    def depth(self):
        return self.len + len(self.rpa) + len(self.dpa)

    def set_target(self, t):
        old = self.target
        self.target = t
        if not (t == INF or (old != INF and t >= old)):
            self.reduce()

    def set_mode(self, mode):
        if mode == self.mode:
            return
        if mode == "lazy":
            t, b = self.target, self.batch
            self.target = 0
            self.batch = 0
            self.reduce()
            while self.d[1] + len(self.q3) != self.len:
                self.reduce()
            self.target, self.batch = t, b
            self.mode = "lazy"
        else:
            self.mode = "default"
            self.d2b()

    # --- phase changes
    def exp(self, q):
        st, c, e = self.d
        if c == 0:
            self.d = [q, 1, q + 1]
        elif q < st:
            self.d = [q, c + 1, e]
        elif q >= e:
            self.d = [st, c + 1, q + 1]
        else:
            self.d = [st, c + 1, e]
        assert self.d[0] + self.d[1] <= self.d[2]

    def d2b(self):
        while self.d[1]:
            st, c, e = self.d
            lim = min(self.bnd(st), st + self.read_max, e)
            got = []
            for q in range(st, lim):
                v = self.idx.get(q)
                if v is None or self.unacked(q):
                    continue
                m = M(q, v[0], v[1], v[2])
                m.idx = True
                m.loc = "store"
                got.append(m)
            if not got:
                assert lim < e or c == 0, (self.d, lim)
                self.d = [lim, c, e]
                continue
            self.q3.extend(got)
            n = c - len(got)
            if n == 0:
                self.q3.extend(self.q2)
                self.q2 = deque()
                self.d = [None, 0, None]
            else:
                assert n > 0
                self.d = [lim, n, e]
            return

    def mrm(self):
        self.ops += 1
        if self.ops >= self.every:
            self.ops = 0
            self.reduce()

    def perm(self):
        if self.len == 0:
            return INF
        if self.mode == "lazy":
            return self.target
        if self.target == 0:
            return min(len(self.q3), self.seg)
        bd = self.len - len(self.q1) - len(self.q4)
        return max(self.seg, bd - (bd * bd) // (bd + self.target))

    def reduce(self):
        if self.target == INF:
            return

        def c(cur, p):
            return 0 if p == INF or p >= cur else cur - p

        ch = c(self.ram + len(self.rpa), self.target)
        if self.mode == "lazy":
            if ch:
                self.lra(ch)
            ch = c(len(self.q3), self.perm())
            if ch:
                self.b2d(ch)
            return
        if ch:
            q = min(ch, self.credit2)
            i, o, ai, ao = self.rates
            fs = [self.lra, self.a2b] if (ai - ao) > (i - o) else [self.a2b, self.lra]
            for f in fs:
                q = f(q)
        ch = c(len(self.q2) + len(self.q3), self.perm())
        if ch >= self.batch:
            self.b2d(min(ch, self.credit2))

    def lra(self, q):
        while q and self.rpa:
            k = max(self.rpa)
            m = self.rpa.pop(k)
            self.wmsg(True, m)
            self.widx(False, m)
            self.trim(m)
            self.dpa[k] = m
            q -= 1
        return q

    def a2b(self, q):
        def push(m):
            self.wmsg(True, m)
            self.widx(False, m)
            b = m.body is not None
            self.trim(m)
            if m.body is None and b:
                self.ram -= 1

        while q and self.target < self.ram and self.q1:
            m = self.q1.popleft()
            push(m)
            (self.q3 if self.d[1] == 0 else self.q2).append(m)
            q -= 1
        while q and self.target < self.ram and self.q4:
            m = self.q4.pop()
            push(m)
            self.q3.appendleft(m)
            q -= 1
        return q

    def b2d(self, q):
        def run(qd, pop, lim):
            nonlocal q
            if not qd:
                return
            low = lim(qd[0].seq)
            if qd[-1].seq < low:
                return
            while q and qd:
                m = qd[-1] if pop == "r" else qd[0]
                if m.seq < low:
                    break
                qd.pop() if pop == "r" else qd.popleft()
                self.widx(True, m)
                if m.body is not None:
                    self.ram -= 1
                self.exp(m.seq)
                q -= 1

        if self.mode == "lazy":
            run(self.q3, "r", lambda x: x)
        else:
            run(self.q3, "r", self.bnd)
            run(self.q2, "l", lambda x: x)
