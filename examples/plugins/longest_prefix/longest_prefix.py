"""An exchange type: a message goes to the queues bound with the longest prefix of its routing key."""

from leveret.routing.exchange_type import Matcher


class LongestPrefix(Matcher):
    def __init__(self, arguments=None):
        super().__init__(arguments)
        self.bound = {}

    def add(self, binding):
        self.bound.setdefault(binding.key, []).append(binding)

    def remove(self, binding):
        self.bound[binding.key].remove(binding)

    def match(self, keys, head, found):
        for key in keys:
            prefixes = (key[:end] for end in range(len(key), -1, -1))
            longest = next(filter(self.bound.get, prefixes), None)
            found.update((each.target, None) for each in self.bound.get(longest, ()))
        return 300 * len(keys)
