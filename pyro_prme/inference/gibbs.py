"""placeholder"""


class Gibbs: ...
